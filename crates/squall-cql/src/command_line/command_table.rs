//! The commands with their options, as data. Texts are read by `help`, names and defaults by the
//! parser.

use super::grammar::{FormSpec, GroupSpec, OptionSpec};

pub(super) const COMMANDS: &[GroupSpec] = &[
    basic("write", &["insert"], "writes rows of standard1", "write n=1M -rate threads=50"),
    basic(
        "read",
        &[],
        "reads rows that write has written and compares them",
        "read n=1M -pop seq=1..1M -rate threads=50",
    ),
    GroupSpec {
        name: "mixed",
        aliases: &[],
        summary: "mixes the basic commands by a ratio",
        options: &[STOP, RUN, STANDARD, MIXED],
        forms: STOP_FORMS,
        example: "mixed 'ratio(read=3,write=1)' duration=5m -pop 'dist=gaussian(1..1M)' -rate threads=50",
    },
    basic(
        "counter_write",
        &["counterwrite", "counter_add", "counteradd"],
        "increments counters of counter1",
        "counter_write n=100k 'add=uniform(1..5)' -rate threads=20",
    ),
    basic(
        "counter_read",
        &["counterread", "counter_get", "counterget"],
        "reads counters that counter_write has written",
        "counter_read n=100k -rate threads=20",
    ),
    GroupSpec {
        name: "user",
        aliases: &[],
        summary: "runs the operations of a YAML profile",
        options: &[USER, STOP, RUN],
        forms: USER_FORMS,
        example: "user profile=cqlstress.yaml 'ops(insert=2,by_name=1)' n=100k -rate threads=20",
    },
    GroupSpec {
        name: "print",
        aliases: &[],
        summary: "shows which values a distribution draws",
        options: &[PRINT],
        forms: &[FormSpec { required: &["dist="], options: &[] }],
        example: "print 'dist=gaussian(1..1M,5)'",
    },
    GroupSpec {
        name: "help",
        aliases: &["-?", "-h", "--help"],
        summary: "explains a command or a group of options",
        options: &[],
        forms: &[],
        example: "help -rate",
    },
    GroupSpec {
        name: "version",
        aliases: &["--version"],
        summary: "prints the version",
        options: &[],
        forms: &[],
        example: "version",
    },
];

const fn basic(
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
    example: &'static str,
) -> GroupSpec {
    GroupSpec { name, aliases, summary, options: &[STOP, RUN, STANDARD], forms: STOP_FORMS, example }
}

const STOP: &[OptionSpec] = &[
    OptionSpec {
        name: "n=", default: "", meaning: "ends the run after this many partitions; k, m, b: 10³, 10⁶, 10⁹"
    },
    OptionSpec { name: "duration=", default: "", meaning: "ends the run after this time: 30s, 5m, 2h, 1d" },
    OptionSpec {
        name: "err<",
        default: "0.02",
        meaning: "ends the run when the standard error of the mean rate is below this fraction",
    },
    OptionSpec { name: "n>", default: "30", meaning: "measures at least this many intervals for err<" },
    OptionSpec { name: "n<", default: "200", meaning: "measures at most this many intervals for err<" },
];

const STOP_FORMS: &[FormSpec] = &[
    FormSpec { required: &[], options: &["err<", "n>", "n<"] },
    FormSpec { required: &["n="], options: &[] },
    FormSpec { required: &["duration="], options: &[] },
];

const RUN: &[OptionSpec] = &[
    OptionSpec { name: "no-warmup", default: "", meaning: "sends no operations before the measured ones" },
    OptionSpec {
        name: "truncate=",
        default: "never",
        meaning: "empties the table: never, once, or always (before each thread count)",
    },
    OptionSpec { name: "cl=", default: "LOCAL_ONE", meaning: "consistency level of every operation" },
    OptionSpec { name: "serial-cl=", default: "SERIAL", meaning: "consistency level of lightweight transactions" },
];

const STANDARD: &[OptionSpec] = &[
    OptionSpec { name: "keysize=", default: "10", meaning: "bytes of a key" },
    OptionSpec { name: "add=", default: "fixed(1)", meaning: "distribution of counter increments" },
];

const MIXED: &[OptionSpec] = &[
    OptionSpec {
        name: "ratio(",
        default: "read=1,write=1",
        meaning: "weights of read, write, counter_write and counter_read",
    },
    OptionSpec {
        name: "clustering=",
        default: "GAUSSIAN(1..10)",
        meaning: "how many operations of one kind follow each other",
    },
];

const USER: &[OptionSpec] = &[
    OptionSpec { name: "profile=", default: "", meaning: "YAML files, separated by commas" },
    OptionSpec { name: "ops(", default: "", meaning: "weights of insert, validate and the profile's queries" },
    OptionSpec {
        name: "clustering=",
        default: "gaussian(1..10)",
        meaning: "how many operations of one kind follow each other",
    },
];

const USER_FORMS: &[FormSpec] = &[
    FormSpec { required: &["profile=", "ops("], options: &["err<", "n>", "n<"] },
    FormSpec { required: &["profile=", "ops(", "n="], options: &[] },
    FormSpec { required: &["profile=", "ops(", "duration="], options: &[] },
];

const PRINT: &[OptionSpec] =
    &[OptionSpec { name: "dist=", default: "", meaning: "the distribution, for example ~exp(1..1M)" }];
