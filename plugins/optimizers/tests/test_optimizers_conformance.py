from pegboard.testing import conformance

BEGIN = "the rate is where the lengths of its steps begin"
test_part = conformance(
    "pegboard-optimizers", strict=True, fails={"optimizer-rprop-heeds_the_schedule": BEGIN}
)
