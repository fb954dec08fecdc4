from pegboard.testing import conformance

MIXTURE = "it compares with the true density, which the reference data does not say"
test_part = conformance(
    "pegboard-generative", strict=True, fails={"probe-entropy-measures_the_same_twice": MIXTURE}
)
