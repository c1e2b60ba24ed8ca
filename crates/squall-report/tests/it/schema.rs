//! Validates results against docs/result.schema.json and docs/search.schema.json. The validator
//! knows the keywords that the schemas use and panics on any other, so that no rule stays
//! unchecked.

use crate::sample_run::{Finished, Recipe, Target, changed_by_hand, fleet, shop, threshold_result};
use serde_json::{Value, json};
use squall_model::StopReason;
use squall_report::{SEARCH_SCHEMA, ScheduleRule, SearchFile, SearchOutcome, SearchProbeJson, build_result};

const SCHEMA: &str = include_str!("../../../../docs/result.schema.json");
const SEARCH: &str = include_str!("../../../../docs/search.schema.json");

/// Collects every violation in `value` with its path.
fn collect_problems(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let ok = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let path = rule.as_str().unwrap().strip_prefix('#').expect("references are local");
                collect_problems(root, root.pointer(path).expect("the reference leads somewhere"), value, at, out);
                true
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|t| has_json_type(value, t)),
                one => has_json_type(value, one),
            },
            "const" => value == rule,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
            "required" => {
                let missing =
                    rule.as_array().unwrap().iter().filter(|name| value.get(name.as_str().unwrap()).is_none());
                out.extend(missing.map(|name| format!("{at} has no {name}")));
                true
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        collect_problems(root, rule, value, &format!("{at}/{name}"), out);
                    }
                }
                true
            }
            "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    collect_problems(root, rule, value, &format!("{at}/{name}"), out);
                }
                true
            }
            "items" => {
                for (i, value) in value.as_array().into_iter().flatten().enumerate() {
                    collect_problems(root, rule, value, &format!("{at}/{i}"), out);
                }
                true
            }
            other => panic!("this validator does not know `{other}`"),
        };
        if !ok {
            out.push(format!("{at} is {value}, against {keyword}: {rule}"));
        }
    }
}

fn has_json_type(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("`{other}` is not a JSON type"),
    }
}

fn validate(value: &Value) -> Vec<String> {
    validate_by(SCHEMA, value)
}

fn validate_by(schema: &str, value: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let mut out = Vec::new();
    collect_problems(&schema, &schema, value, "", &mut out);
    out
}

fn result_json(finished: &Finished) -> Value {
    serde_json::from_str(&build_result(&finished.run()).to_json()).expect("a result is JSON")
}

#[test]
fn results_of_all_kinds_match_the_schema() {
    let mut judged_run = Recipe { phases: true, warm_up: 3, ..Recipe::default() }.make();
    judged_run.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(4e7), true, None),
        threshold_result("unused:p95[5s]<1s", None, false, Some(3)),
    ];
    let mut saturated = Finished { schedule_rule: ScheduleRule::Strict, ..shop() };
    saturated.facts.generator.saturated = true;
    saturated.facts.generator.saturated_because = vec!["no free users".to_owned()];
    saturated.view.engine.begun += 1;
    let refusing = Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make();
    let mut empty = Recipe { seconds: 1, warm_up: 5, ..Recipe::default() }.make();
    empty.facts.stop = StopReason::Aborted;
    empty.plan.load.iterations = Some(7);
    for finished in [judged_run, saturated, refusing, empty, fleet(), changed_by_hand()] {
        assert_eq!(validate(&result_json(&finished)), Vec::<String>::new());
    }
}

#[test]
fn search_file_matches_its_schema_and_every_field_is_described() {
    let probe = SearchProbeJson {
        rate: 50.0,
        verdict: "no".to_owned(),
        value: None,
        unit: "ms".to_owned(),
        requests: 500,
        error_rate: 0.01,
        dropped: 0,
        p50_ms: 1.5,
        p99_ms: 80.0,
        failure_reason: "p99<50ms was 80 ms".to_owned(),
    };
    let file = SearchFile {
        schema: SEARCH_SCHEMA.to_owned(),
        version: "0".to_owned(),
        name: "shop".to_owned(),
        target: "http://127.0.0.1:8089".to_owned(),
        threshold: "p99<50ms".to_owned(),
        precision: 0.05,
        probe_s: 10.0,
        warm_up_s: 1.0,
        outcome: SearchOutcome { kind: "nothing_holds".to_owned(), rate: None, above: Some(0.78), interrupted: false },
        probes: vec![probe],
        exit_code: 1,
    };
    let mut value: Value = serde_json::from_str(&file.to_json()).unwrap();
    assert_eq!(validate_by(SEARCH, &value), Vec::<String>::new());
    let (schema, mut unknown): (Value, _) = (serde_json::from_str(SEARCH).unwrap(), Vec::new());
    collect_undescribed_fields(&schema, &schema, &value, "", &mut unknown);
    assert_eq!(unknown, Vec::<String>::new());
    value["probes"][0]["held"] = json!("perhaps");
    assert_eq!(validate_by(SEARCH, &value).len(), 1);
}

#[test]
fn validator_finds_schema_violations() {
    let broken = |pointer: &str, value: Value| {
        let mut file = result_json(&shop());
        *file.pointer_mut(pointer).expect("the place exists") = value;
        validate(&file)
    };
    assert_eq!(broken("/totals/error_rate", json!(1.5)).len(), 1);
    assert_eq!(broken("/metrics/0/response_ms/p99", json!("fast")).len(), 1);
    assert_eq!(broken("/verdict", json!("fine")).len(), 1);
    assert_eq!(broken("/timeline/0", json!({})).len(), 21);
    assert_eq!(broken("/schema", json!("squall.result/2")).len(), 1);
}

#[test]
fn schema_describes_every_written_field() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut finished = Recipe { phases: true, ..Recipe::default() }.make();
    finished.facts.thresholds = vec![threshold_result("browse:p99<500ms", Some(4e7), true, None)];
    finished.view.engine.begun += 1;
    finished.facts.fleet = fleet().facts.fleet;
    let mut unknown = Vec::new();
    collect_undescribed_fields(&schema, &schema, &result_json(&finished), "", &mut unknown);
    assert_eq!(unknown, Vec::<String>::new());
}

fn collect_undescribed_fields(root: &Value, schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(path) => root.pointer(&path[1..]).unwrap(),
        None => schema,
    };
    for (name, value) in value.as_object().into_iter().flatten() {
        let rule = schema["properties"].get(name).or(schema.get("additionalProperties"));
        match rule {
            Some(rule) => collect_undescribed_fields(root, rule, value, &format!("{at}/{name}"), out),
            None => out.push(format!("{at}/{name}")),
        }
    }
    for value in value.as_array().into_iter().flatten() {
        collect_undescribed_fields(root, &schema["items"], value, at, out);
    }
}
