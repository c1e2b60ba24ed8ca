//! Good command lines with what they mean, and bad ones with their exact error.

use super::*;
use crate::*;
use proptest::prelude::*;
use std::{path::PathBuf, time::Duration};

#[track_caller]
fn settings(line: &str) -> StressSettings {
    match parse_command_line(&[line]) {
        Ok(CqlCommand::Stress(settings)) => *settings,
        other => panic!("{line}: {other:?}"),
    }
}

#[track_caller]
fn check_error(line: &str, expected: &str) {
    match parse_command_line(&[line]) {
        Err(error) => assert_eq!(error.to_string(), expected, "{line}"),
        Ok(parsed) => panic!("{line}: {parsed:?}"),
    }
}

#[test]
fn defaults_are_those_of_cassandra_stress() {
    let write = settings("write n=1000");
    assert_eq!(write.command.operation, StressOperation::Basic(BasicOperation::Write));
    assert_eq!(write.command.stop, StopRule::Partitions(1000));
    assert_eq!((write.command.consistency, write.command.truncate), (Consistency::LocalOne, Truncate::Never));
    assert_eq!((write.command.key_size, &write.command.add), (10, &Distribution::Fixed(1)));
    assert_eq!(write.command.warm_up, WarmUp::Run);
    assert_eq!(write.rate, RateSettings { threads: ThreadPlan::Fixed(200), pacing: Pacing::Unlimited, processes: 1 });
    let sequence = SeedSequence { first: 1, last: 1000, end: SequenceEnd::Wrap };
    assert_eq!(write.population.seeds, Population::Sequence { sequence, read_lookback: None });
    assert_eq!((write.population.data_set, write.population.order), (DataSet::Classic, PartitionOrder::Generated));
    assert_eq!(write.columns.names, ["C0", "C1", "C2", "C3", "C4"]);
    assert_eq!(write.columns.size, Distribution::Fixed(34));
    assert_eq!(write.schema.keyspace, "keyspace1");
    assert_eq!(write.schema.replication_options, [("replication_factor".to_owned(), "1".to_owned())]);
    assert_eq!((write.errors.retries, write.errors.ignore), (9, false));
    assert_eq!((write.log.interval, write.log.level), (Duration::from_secs(1), LogLevel::Normal));
    assert_eq!(write.mode.request_timeout, Duration::from_secs(12));
    assert_eq!((write.mode.connections_per_host, write.nodes.port), (8, 9042));
    let localhost = NodeAddress { host: "localhost".to_owned(), port: None };
    assert_eq!(write.nodes.nodes, NodeList::Listed(vec![localhost]));
    assert_eq!((write.tls, write.graph), (None, None));
}

#[test]
fn reads_draw_seeds_and_search_for_the_number_of_threads() {
    let read = settings("read n=500");
    assert_eq!(read.population.seeds, Population::Drawn(Distribution::gaussian(1, 500)));
    assert_eq!(read.rate.threads, ThreadPlan::Steps { min: 4, max: 1000, until_saturated: true });
    let endless = settings("write");
    let error = StopRule::StandardError { target: 0.02, min_intervals: 30, max_intervals: 200 };
    assert_eq!(endless.command.stop, error);
    assert!(matches!(endless.rate.threads, ThreadPlan::Steps { .. }));
    assert!(matches!(endless.population.seeds, Population::Sequence { sequence, .. } if sequence.last == 1_000_000));
    let user = |ops: &str| settings(&format!("user profile=p.yaml ops({ops}) n=9")).population.seeds;
    assert!(matches!(user("insert=1"), Population::Sequence { .. }));
    assert!(matches!(user("insert=1,q=1"), Population::Drawn(_)));
}

#[test]
fn commands_have_aliases_in_any_case() {
    let operation = |line: &str| settings(line).command.operation;
    let basic = StressOperation::Basic;
    assert_eq!(operation("INSERT n=1"), basic(BasicOperation::Write));
    for alias in ["counter_write", "counterwrite", "counter_add", "COUNTERADD"] {
        assert_eq!(operation(alias), basic(BasicOperation::CounterWrite));
    }
    for alias in ["counter_read", "counterread", "counter_get", "counterget"] {
        assert_eq!(operation(alias), basic(BasicOperation::CounterRead));
    }
    let mixed = operation("mixed ratio(read=2.5,counterwrite=1) clustering=fixed(3)");
    let weights = vec![(BasicOperation::Read, 2.5), (BasicOperation::CounterWrite, 1.0)];
    assert_eq!(mixed, StressOperation::Mixed { weights, clustering: Distribution::Fixed(3) });
    assert_eq!(
        operation("user profile=a.yaml,b.yaml ops( a.insert = 1 , b.q=2 )"),
        StressOperation::User {
            profiles: vec![PathBuf::from("a.yaml"), PathBuf::from("b.yaml")],
            weights: vec![("a.insert".to_owned(), 1.0), ("b.q".to_owned(), 2.0)],
            clustering: Distribution::gaussian(1, 10),
        }
    );
}

#[test]
fn stop_rules_are_read() {
    let stop = |line: &str| settings(line).command.stop;
    assert_eq!(stop("write n=2M"), StopRule::Partitions(2_000_000));
    assert_eq!(stop("write n=0"), StopRule::Partitions(0));
    let seconds = |seconds| StopRule::Time(Duration::from_secs(seconds));
    assert_eq!([stop("read duration=30s"), stop("read duration=5M")], [seconds(30), seconds(300)]);
    assert_eq!([stop("read duration=2h"), stop("read duration=1d")], [seconds(7200), seconds(86_400)]);
    let error = StopRule::StandardError { target: 0.1, min_intervals: 5, max_intervals: 10 };
    assert_eq!(stop("read err<0.1 n>5 n<10"), error);
}

#[test]
fn rates_are_read() {
    let rate = |line: &str| settings(&format!("write n=1 -rate {line}")).rate;
    assert_eq!(rate("threads=40,processes=4,throttle=100/s").processes, 4);
    assert_eq!(rate("threads=40 throttle=100/s").pacing, Pacing::Throttle(100));
    assert_eq!(rate("threads=40 fixed=5k/s").pacing, Pacing::Fixed(5000));
    assert_eq!(rate("threads=40 fixed=0/s").pacing, Pacing::Unlimited);
    assert_eq!(rate("auto threads<=20").threads, ThreadPlan::Steps { min: 4, max: 20, until_saturated: true });
    assert_eq!(rate("threads>=2 threads<=8").threads, ThreadPlan::Steps { min: 2, max: 8, until_saturated: false });
    assert_eq!(rate("processes=2").threads, ThreadPlan::Fixed(200));
}

#[test]
fn populations_are_read() {
    let population = |line: &str| settings(&format!("write n=10 -pop {line}")).population;
    assert_eq!(population("dist=uniform(1..5)").seeds, Population::Drawn(Distribution::uniform(1, 5)));
    let sequence = SeedSequence { first: 3, last: 7, end: SequenceEnd::Stop };
    let read_lookback = Some(Distribution::Fixed(2));
    let expected = Population::Sequence { sequence, read_lookback };
    assert_eq!(population("seq=3..7 no-wrap read-lookback=fixed(2)").seeds, expected);
    assert_eq!(population("contents=shuffled").order, PartitionOrder::Shuffled);
    assert_eq!(population("seeds=apache4").data_set, DataSet::Apache4);
}

#[test]
fn the_other_groups_are_read() {
    let all = settings(
        "write n=1 no-warmup cl=quorum truncate=once -col names=b,a size=uniform(1..9) slice timestamp=7 \
         -insert visits=fixed(3) batchtype=UNLOGGED select-ratio=fixed(1)/2 \
         -schema keyspace=ks replication(strategy=NetworkTopologyStrategy,dc1=3) compression=LZ4Compressor \
         compaction(strategy=LeveledCompactionStrategy,sstable_size_in_mb=10) \
         -errors retries=3 ignore -log level=verbose interval=500ms hdrfile=x.hdr no-summary \
         -mode native cql3 user=u password=p compression=lz4 protocolVersion=4 connectionsPerHost=2 requestTimeout=5000 \
         -node 10.0.0.1,h:9999,[::1]:7 whitelist datacenter=dc1 -port native=19042 jmx=1 \
         -transport truststore=t.jks truststore-password=s -graph file=g.html title=t -tokenrange split-factor=4 wrap",
    );
    assert_eq!((all.command.consistency, all.command.truncate), (Consistency::Quorum, Truncate::Once));
    assert_eq!(
        (all.columns.names, all.columns.slice, all.columns.timestamp),
        (vec!["a".into(), "b".into()], true, Some(7))
    );
    assert_eq!(all.insert.batch, Some(BatchKind::Unlogged));
    assert_eq!(all.schema.replication_options, [("dc1".to_owned(), "3".to_owned())]);
    assert_eq!(all.schema.compaction_strategy.as_deref(), Some("LeveledCompactionStrategy"));
    assert_eq!((all.errors.retries, all.errors.ignore), (3, true));
    assert_eq!((all.log.interval, all.log.print_summary), (Duration::from_millis(500), false));
    assert_eq!((all.mode.user.as_deref(), all.mode.compression), (Some("u"), FrameCompression::Lz4));
    assert_eq!((all.mode.connections_per_host, all.mode.request_timeout), (2, Duration::from_secs(5)));
    let NodeList::Listed(nodes) = &all.nodes.nodes else { panic!("{:?}", all.nodes) };
    let nodes: Vec<_> = nodes.iter().map(|node| (node.host.as_str(), node.port)).collect();
    assert_eq!(nodes, [("10.0.0.1", None), ("h", Some(9999)), ("::1", Some(7))]);
    assert_eq!((all.nodes.port, all.nodes.whitelist), (19042, true));
    assert_eq!(all.tls.unwrap().truststore, PathBuf::from("t.jks"));
    assert_eq!(all.graph.unwrap().title.as_deref(), Some("t"));
    assert_eq!(all.token_range, TokenRangeSettings { split_factor: 4, wrap: true });
}

#[test]
fn mistakes_are_refused_with_a_hint() {
    check_error(
        "",
        "there is not a command: begin with write, read, mixed, counter_write, counter_read, user, print or help",
    );
    check_error("wirte n=1", "wirte is not a command: did you mean write?");
    check_error("legacy -n 5", "legacy is not a command: write the command line of cassandra-stress 2.1 or later");
    check_error("write n=1 -rat threads=1", "-rat is not a group of options: did you mean -rate?");
    check_error("write n=1 -sendto host", "-sendto is not a group of options: --cluster runs the command on a fleet");
    check_error("write n=1 -rate thread=1", "-rate does not know thread=1: did you mean threads=?");
    check_error("write n=1 threads=5", "write does not know threads=5: -rate has it");
    check_error("write n=1 -mode thrift", "-mode does not know thrift: only native cql3 is left");
    let of_command = "it belongs to the command: write it before the first group";
    check_error("write n=1 -rate threads=2 no-warmup", &format!("-rate does not know no-warmup: {of_command}"));
    check_error("mixed n=1 -pop ratio(read=1)", &format!("-pop does not know ratio(read=1): {of_command}"));
    check_error("write n=1 connectionsperhost=2", "write does not know connectionsperhost=2: -mode has it");
    check_error(
        "write n=1 -mode connectionPerHost=2",
        "-mode does not know connectionPerHost=2: did you mean connectionsPerHost=?",
    );
    check_error("write n=1 -node", "-node has no options: write some after it, or remove it");
    check_error("write n=1 n=2", "write has n= twice: remove one of them");
    check_error("write n=1 -rate auto -rate auto", "-rate is there twice: write all of its options after the first");
    check_error("write n=1 duration=5s", "write cannot have n= and duration= together: remove all but one");
    check_error("write n=1 n>5", "write cannot have n= and n> together: remove all but one");
    check_error("write n=1 -rate throttle=5/s", "-rate needs threads=; see `help -rate`");
    check_error("write n=1 -rate threads=5 auto", "-rate cannot have threads= and auto together: remove all but one");
    check_error("write n=1 -pop no-wrap", "-pop needs seq=; see `help -pop`");
    check_error(
        "write n=1 -threads 5",
        "-threads is not a group of options: threads= is an option of -rate and has no dash",
    );
    check_error("write n=1 --rate threads=5", "--rate is not a group of options: did you mean -rate?");
    check_error(
        "write n=1 --threads=5",
        "--threads=5 is not a group of options: threads= is an option of -rate and has no dash",
    );
    check_error("user n=1 profile=a", "user needs ops(…); see `help user`");
    check_error("mixed n=1 ratio(read=1", "mixed does not know ratio(read=1: a ) is missing");
    check_error("mixed n=1 ratoi(read=1)", "mixed does not know ratoi(read=1): did you mean ratio(…)?");
    check_error(
        "write n=1 -node 127.0.0.1 9042",
        "-node has both 127.0.0.1 and 9042: write one word, with commas between several values",
    );
    check_error("user n=1 ops(insert=1)", "user needs profile=; see `help user`");
    check_error("write n=1 -graph title=x", "-graph needs file=; see `help -graph`");
    check_error("print", "print needs dist=; see `help print`");
}

#[test]
fn wrong_values_are_named_with_their_option() {
    check_error(
        "write n=x",
        "write n=x: \"x\" is not a whole number; k, m and b stand for thousands, millions and billions",
    );
    check_error("write n=", "write n=: the value is missing");
    check_error("write n=1 -mode native cql3 user=u password=", "-mode password=: the value is missing");
    check_error("write duration=5y", "write duration=5y: use a number and s, m, h or d, as in 5m");
    check_error("write duration=0s", "write duration=0s: the run has no time: use a number above 0");
    check_error(
        "write n=1 -transport keystore-password=p",
        "-transport keystore-password=: it needs truststore= beside it, which switches TLS on",
    );
    check_error(
        "write n=1 -transport hostname-verification=true",
        "-transport hostname-verification=: it needs truststore= beside it, which switches TLS on",
    );
    check_error("write n=1 -mode connectionsperhost=0", "-mode connectionsPerHost=0: use a number from 1 to 1024");
    check_error("write n=1 -mode MAXPENDING=", "-mode MAXPENDING=: the value is missing");
    check_error("write n=1 cl=LOCAL_QOURUM", "write cl=LOCAL_QOURUM: did you mean LOCAL_QUORUM?");
    check_error("write n=1 -pop seq=5", "-pop seq=5: \"5\" is not a range: write first..last, as in 1..10M");
    check_error(
        "write n=1 -pop dist=foo(1..2)",
        "-pop dist=foo(1..2): \"foo\" is not a distribution: use fixed, uniform, gaussian, exp, extreme, qextreme, seq",
    );
    check_error(
        "write n=1 -col n=uniform(1..3)",
        "-col n=uniform(1..3): Variable column counts are not implemented for CQL: use fixed(N)",
    );
    check_error("write n=1 -rate threads=5 fixed=5", "-rate fixed=5: use a number and /s, as in 5000/s");
    check_error(
        "write n=1 -rate threads=5 fixed=5/s throttle=6/s",
        "-rate throttle=: it cannot be combined with fixed=: remove one of them",
    );
    check_error("write n=1 -rate threads=0", "-rate threads=0: use a number from 1 to 1000000");
    check_error("write n=1 -port native=70000", "-port native=70000: use a number from 1 to 65535");
    check_error(
        "mixed ratio(read=0,write=0)",
        "mixed ratio(read=0,write=0): one weight must be above 0, as in read=3,write=1",
    );
    check_error("mixed ratio(reed=1)", "mixed ratio(reed=1): reed is not a basic command: did you mean read?");
    check_error("write n=1 -log interval=0", "-log interval=0: use seconds or milliseconds, as in 10s or 500ms");
    check_error(
        "user profile=a ops(insert=1) -schema keyspace=k",
        "-schema cannot be used with user: the profile has the schema",
    );
    check_error("write n=1 -mode native cql3 password=p", "-mode password=: it needs user= beside it");
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    let remove =
        |option: &str, other: &str| format!("{option}: it cannot be combined with {other}: remove one of them");
    check_error("write n=1 -mode prepared unprepared", &remove("-mode unprepared", "prepared"));
    check_error("write n=1 -mode user=a username=b", &remove("-mode username=", "user="));
    check_error("write n=1 -errors fail-fast retries=3", &remove("-errors fail-fast", "retries="));
    check_error("write n=1 -errors ignore fail-fast", &remove("-errors fail-fast", "ignore"));
    check_error(
        "write n=1 -mode port=9043 -port native=9042",
        "-port native=: -mode port= is the same: remove one of them",
    );
    check_error(
        "write n=1 -log interval=5 -reporting output-frequency=10s",
        "-reporting output-frequency=: -log interval= is the same: remove one of them",
    );
    check_error(
        "write n=1 -errors min-delay-ms=9 max-delay-ms=5",
        "-errors min-delay-ms=9: it is above max-delay-ms=5: exchange them",
    );
    check_error("write n=1 -errors delay-policy=linear", "-errors delay-policy=: it needs max-delay-ms= beside it");
}

#[test]
fn an_auth_provider_other_than_plain_text_is_refused() {
    let provider = |class: &str| format!("write n=1 -mode native cql3 user=u password=p auth-provider={class}");
    settings(&provider("PlainTextAuthProvider"));
    settings(&provider("com.datastax.driver.core.PlainTextAuthProvider"));
    for class in ["com.datastax.driver.dse.auth.DseGSSAPIAuthProvider", "MyPlainTextAuthProvider"] {
        let expected =
            format!("-mode auth-provider={class}: only PlainTextAuthProvider is possible: use it, or remove it");
        check_error(&provider(class), &expected);
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    check_error(
        "write n=x -rate thread=1 -grap -pop dist=bar",
        "-rate does not know thread=1: did you mean threads=?\n\
         -grap is not a group of options: did you mean -graph?\n\
         write n=x: \"x\" is not a whole number; k, m and b stand for thousands, millions and billions\n\
         -pop dist=bar: \"bar\" is not a distribution: write NAME(arguments), as in uniform(1..100); the names are fixed, \
         uniform, gaussian, exp, extreme, qextreme and seq",
    );
}

#[test]
fn print_version_and_help_need_no_database() {
    let print = parse_command_line(&["print", "dist=exp(1..100)"]).unwrap();
    assert_eq!(print, CqlCommand::Print("exp(1..100)".parse().unwrap()));
    assert_eq!(parse_command_line(&["version"]).unwrap(), CqlCommand::Version);
    assert_eq!(parse_command_line(&["-?"]).unwrap(), parse_command_line(&["help"]).unwrap());
    assert_eq!(parse_command_line(&["help", "rate"]).unwrap(), parse_command_line(&["help", "-rate"]).unwrap());
    check_error("help -rat", "-rat is not a group of options: did you mean -rate?");
    check_error("help wirte", "wirte is not a command: did you mean write?");
    check_error("help rat", "rat is not a command: did you mean -rate?");
}

#[test]
fn every_command_and_group_has_a_page_whose_example_is_valid() {
    for spec in command_table::COMMANDS.iter().chain(group_table::GROUPS) {
        let Ok(CqlCommand::Help(page)) = parse_command_line(&["help", spec.name]) else { panic!("{}", spec.name) };
        assert!(page.starts_with(spec.name) && page.contains(spec.summary), "{page}");
        // In the shell, the quotes protect every word that needs them.
        let (unquoted, quoted): (Vec<_>, Vec<_>) =
            spec.example.split('\'').enumerate().partition(|(part, _)| part % 2 == 0);
        assert!(unquoted.iter().all(|(_, part)| !part.contains(['(', ')', '<', '>'])), "{}", spec.example);
        assert!(quoted.iter().all(|(_, part)| !part.contains(' ')), "{}", spec.example);
        let typed = spec.example.replace('\'', "");
        parse_command_line(&[&typed]).unwrap_or_else(|error| panic!("{typed}: {error}"));
    }
}

#[test]
fn help_texts() {
    let help = |words: &[&str]| match parse_command_line(words).unwrap() {
        CqlCommand::Help(text) => text,
        other => panic!("{other:?}"),
    };
    insta::assert_snapshot!("help", help(&["help"]));
    insta::assert_snapshot!("help_write", help(&["help", "write"]));
    insta::assert_snapshot!("help_rate", help(&["help", "-rate"]));
    insta::assert_snapshot!("help_mode", help(&["help", "-mode"]));
}

#[test]
fn the_settings_are_dumped() {
    insta::assert_snapshot!("settings_write", settings_dump(&settings("write n=100 -rate threads=4 throttle=50/s")));
    insta::assert_snapshot!(
        "settings_mixed",
        settings_dump(&settings(
            "mixed ratio(read=2,write=1) duration=5m -pop seq=1..1k read-lookback=uniform(1..5) \
             -mode native cql3 user=u password=secret -schema compaction(strategy=LeveledCompactionStrategy,a=b)"
        ))
    );
}

/// A table of the parser must be free of mistakes that only a user would notice.
#[test]
fn tables_have_no_unknown_names() {
    for spec in command_table::COMMANDS.iter().chain(group_table::GROUPS) {
        let names: Vec<&str> = spec.all_options().map(|option| option.name).collect();
        for form in spec.forms {
            for name in form.required.iter().chain(form.options) {
                assert!(names.contains(name), "{} {name}", spec.name);
            }
        }
        // Case does not matter in options.
        let mut unique: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "{}", spec.name);
        assert_eq!(spec.name, spec.name.to_lowercase());
    }
}

/// Words of real command lines, and values that fit or do not.
fn any_words() -> impl Strategy<Value = Vec<String>> {
    let specs = || command_table::COMMANDS.iter().chain(group_table::GROUPS);
    let names: Vec<String> = specs().map(|spec| spec.name.to_owned()).collect();
    let options: Vec<String> =
        specs().flat_map(|spec| spec.all_options()).map(|option| option.name.to_owned()).collect();
    let values = ["", "1", "5k", "x", "1..9", "fixed(3)", "uniform(1..5)/7", "read=1,write=2", "~exp(1..2)", "é", "-1"];
    let option = (prop::sample::select(options), prop::sample::select(values.to_vec()))
        .prop_map(|(name, value)| format!("{name}{value}{}", if name.ends_with('(') { ")" } else { "" }));
    prop::collection::vec(prop_oneof![prop::sample::select(names), option, ".{0,10}"], 0..8)
}

proptest! {
    #[test]
    fn any_command_line_is_read_or_explained(words in any_words()) {
        match parse_command_line(&words) {
            Ok(CqlCommand::Stress(settings)) => prop_assert!(!settings_dump(&settings).is_empty()),
            Ok(_) => {}
            Err(error) => prop_assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
        }
    }
}
