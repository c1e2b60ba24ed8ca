//! Draws that the running cassandra-stress made, and what holds for every distribution.

use super::*;
use proptest::prelude::*;

fn sampler(text: &str, seed: i64) -> Sampler {
    let mut sampler = Sampler::new(text.parse().unwrap());
    sampler.seed(seed);
    sampler
}

#[track_caller]
fn check(text: &str, seed_42: [i64; 5], seed_minus_7: [i64; 3]) {
    let mut draws = sampler(text, 42);
    assert_eq!(seed_42.map(|_| draws.draw()), seed_42, "{text} after seed 42");
    let mut draws = sampler(text, -7);
    assert_eq!(seed_minus_7.map(|_| draws.draw()), seed_minus_7, "{text} after seed -7");
}

#[test]
fn draws_equal_those_of_cassandra_stress() {
    check("uniform(1..100)", [73, 69, 31, 28, 67], [27, 68, 53]);
    check(
        "uniform(1..100B)",
        [72_756_368_004, 68_322_347_176, 30_871_945_534, 27_707_849_008, 66_554_895_180],
        [26_912_180_933, 67_318_119_028, 52_148_963_730],
    );
    check("gaussian(1..100)", [69, 65, 34, 32, 55], [30, 65, 51]);
    check("gaussian(1..100,5)", [61, 59, 41, 39, 53], [38, 59, 51]);
    check("gaussian(1..100,20,4)", [24, 23, 16, 15, 21], [15, 23, 20]);
    check("exp(1..100)", [20, 16, 40, 35, 15], [34, 15, 2]);
    check("exp(1..1M)", [65_887, 53_049, 134_346, 116_024, 47_932], [111_416, 50_142, 6_222]);
    check("extreme(1..100,0.7)", [44, 37, 8, 7, 35], [6, 36, 20]);
    check("extreme(1..1M,2)", [433_872, 407_941, 231_190, 216_725, 398_191], [213_038, 402_365, 326_654]);
    check("~exp(1..100)", [81, 85, 61, 66, 86], [67, 86, 99]);
    check("seq(5..9)", [7, 8, 9, 5, 6], [3, 4, 5]);
    check("fixed(34)", [34; 5], [34; 3]);
}

#[test]
fn real_draws_equal_those_of_cassandra_stress() {
    let cases = [
        ("uniform(1..100)", 73.756_368_003_286_81),
        ("gaussian(1..100)", 69.341_437_705_305_4),
        ("exp(1..100)", 20.611_070_055_196_997),
    ];
    for (text, expected) in cases {
        assert_eq!(sampler(text, 42).draw_real(), expected, "{text}");
    }
}

#[test]
fn quantiles_equal_those_of_cassandra_stress() {
    let quantiles = |text: &str| {
        let distribution: Distribution = text.parse().unwrap();
        [0.0, 0.1, 0.5, 0.9, 1.0].map(|p| distribution.quantile(p))
    };
    assert_eq!(quantiles("exp(1..100)"), [1, 5, 30, 100, 100]);
    assert_eq!(quantiles("gaussian(1..100)"), [1, 29, 50, 71, 100]);
    assert_eq!(quantiles("seq(5..9)"), [5, 5, 7, 8, 9]);
    assert_eq!(quantiles("uniform(1..10)"), [1, 2, 6, 10, 10]);
}

#[test]
fn the_printed_table_equals_that_of_cassandra_stress() {
    let expected = "\
% of samples    Range       % of total
10.0            64                  64.0
20.0            67                  67.0
30.0            70                  70.0
40.0            72                  72.0
50.0            75                  75.0
60.0            77                  77.0
70.0            79                  79.0
80.0            82                  82.0
90.0            85                  85.0
95.0            88                  88.0
99.0            94                  94.0
100.0           100                100.0
";
    assert_eq!(print_distribution(&"gaussian(50..100)".parse().unwrap()), expected);
}

#[test]
fn descriptions_equal_those_of_cassandra_stress() {
    let cases = [
        ("uniform(5..12)", "Uniform:  min=5,max=12"),
        ("fixed(3)", "Fixed:  key=3"),
        ("gaussian(1..1000,5)", "Gaussian:  min=1,max=1000,mean=500.500000,stdev=99.900000"),
        ("exp(1..1M)", "Exponential:  min=1,max=1000000,mean=144764.693015"),
        ("extreme(1..1M,2)", "Extreme:  min=1,max=1000000,shape=2.000000, scale=380479.366392"),
        ("~exp(1..100000)", "Inverse: Exponential:  min=1,max=100000,mean=17371.620647"),
        ("seq(5..900)", "Sequence:  start=5,end=900"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Distribution>().unwrap().to_string(), expected);
    }
    let ratio: Ratio = "fixed(1)/1".parse().unwrap();
    assert_eq!(ratio.to_string(), "Ratio: divisor=1.000000;delegate=Fixed:  key=1");
}

#[test]
fn names_have_aliases_in_any_case_and_ranges_any_number_of_dots() {
    let same = |a: &str, b: &str| assert_eq!(a.parse::<Distribution>(), b.parse::<Distribution>(), "{a} {b}");
    for alias in ["GAUSS", "Normal", "norm"] {
        same(&format!("{alias}(1..10)"), "gaussian(1..10)");
    }
    same("extr(1..10,2)", "EXTREME(1...10,2)");
    same("QEXTR(1..10,2,3)", "qextreme( 1 .. 10 , 2 , 3 )");
    same("uniform(1..2k)", "uniform(1..2000)");
    same("uniform(1..2M)", "uniform(1..2000000)");
    same("uniform(7..7)", "fixed(7)");
    same("exp(7..7)", "fixed(7)");
    same("extreme(7..7,2)", "fixed(7)");
}

#[test]
fn mistakes_are_explained() {
    let cases = [
        (
            "uniform",
            "\"uniform\" is not a distribution: write NAME(arguments), as in uniform(1..100); the names are fixed, uniform, gaussian, exp, extreme, qextreme and seq",
        ),
        ("unifrom(1..2)", "\"unifrom\" is not a distribution: use uniform"),
        (
            "weibull(1..2,3)",
            "\"weibull\" is not a distribution: use fixed, uniform, gaussian, exp, extreme, qextreme, seq",
        ),
        ("uniform(1,2)", "\"1\" is not a range: write first..last, as in 1..10M"),
        ("uniform(3..2)", "the range \"3..2\" is empty: its first number must not be above its second"),
        ("uniform(1..2,3)", "uniform(1..2,3) has the wrong arguments: write uniform(min..max)"),
        ("extreme(1..2)", "extreme(1..2) has the wrong arguments: write extreme(min..max,shape) with a shape above 0"),
        (
            "extreme(1..2,-1)",
            "extreme(1..2,-1) has the wrong arguments: write extreme(min..max,shape) with a shape above 0",
        ),
        ("seq(2..2)", "seq(2..2) has the wrong arguments: write seq(min..max) with different numbers"),
        ("fixed(x)", "fixed(x) has the wrong arguments: write fixed(value)"),
        ("fixed(9999999999b)", "fixed(9999999999b) has the wrong arguments: write fixed(value)"),
    ];
    for (text, expected) in cases {
        assert_eq!(text.parse::<Distribution>().unwrap_err().to_string(), expected);
    }
    for text in ["fixed(1)", "fixed(1)/0", "fixed(1)/x", "fixed(1)/-1"] {
        assert!(matches!(text.parse::<Ratio>(), Err(DistributionError::Ratio { .. })), "{text}");
    }
}

#[test]
fn a_value_on_the_lowest_bound_belongs_to_the_first_quantum() {
    let distribution: Distribution = "qextreme(1..100,2,4)".parse().unwrap();
    let Distribution::Quantized { bounds, .. } = &distribution else { panic!("{distribution:?}") };
    assert_eq!((bounds.len(), bounds[0], bounds[4]), (5, 1, 101));
    let mut draws = Sampler::new(distribution);
    assert!((0..1000).all(|_| (1..=100).contains(&draws.draw())));
}

fn any_distribution() -> impl Strategy<Value = String> {
    let range = (0_i64..1000, 1_i64..1_000_000).prop_map(|(min, width)| format!("{min}..{}", min + width));
    let kind = prop_oneof![
        Just(("uniform", "")),
        Just(("gaussian", "")),
        Just(("gaussian", ",5")),
        Just(("gaussian", ",20,4")),
        Just(("exp", "")),
        Just(("extreme", ",0.7")),
        Just(("qextreme", ",2,5")),
        Just(("seq", "")),
    ];
    (kind, range, any::<bool>())
        .prop_map(|((name, rest), range, inverted)| format!("{}{name}({range}{rest})", if inverted { "~" } else { "" }))
}

proptest! {
    #[test]
    fn draws_and_quantiles_stay_within_the_bounds(text in any_distribution(), seed in 0_i64.., p in 0.0..=1.0) {
        let distribution: Distribution = text.parse().unwrap();
        let (low, high) = (distribution.min().min(distribution.max()), distribution.max().max(distribution.min()));
        prop_assert!((low..=high).contains(&distribution.quantile(p)));
        let mut draws = Sampler::new(distribution);
        draws.seed(seed);
        for _ in 0..20 {
            let (value, real) = (draws.draw(), draws.draw_real());
            prop_assert!((low..=high).contains(&value), "{value}");
            prop_assert!(real >= low as f64 && real <= high as f64, "{real}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_draws(text in any_distribution(), seed: i64) {
        prop_assume!(!text.contains("qextreme"));
        let (mut once, mut again) = (sampler(&text, seed), sampler(&text, 0));
        again.draw();
        again.seed(seed);
        prop_assert!((0..10).all(|_| once.draw() == again.draw()));
    }

    #[test]
    fn draws_follow_the_quantiles(text in any_distribution(), seed in 0_i64..) {
        // A sequence draws nothing at random.
        prop_assume!(!text.contains("seq"));
        let distribution: Distribution = text.parse().unwrap();
        let mut draws = sampler(&text, seed);
        let median = distribution.quantile(0.5);
        let below = (0..4000).filter(|_| draws.draw() <= median).count();
        prop_assert!(below >= 1800, "{below} of 4000 draws are at most the median {median}");
    }

    #[test]
    fn any_text_is_read_or_explained(text in ".{0,40}") {
        if let Err(error) = text.parse::<Distribution>() {
            prop_assert!(!error.to_string().is_empty());
        }
        let _ = text.parse::<Ratio>();
    }
}
