//! Tests of vikhry's routes field by field: every field that its clients read is present and has
//! content, and the OpenAPI document describes every field.

use serde_json::{Value, json};
use squall_web::{StartableParam, StartableScenario, WebConfig};

use crate::support::{REQUESTS_PER_SECOND, World, startable_scenario, world, world_with};

const AGGREGATE: [&str; 13] = [
    "window_s",
    "requests",
    "errors",
    "error_rate",
    "rps",
    "latency_avg_ms",
    "latency_median_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "result_code_counts",
    "result_category_counts",
    "fatal_count",
    "top_result_codes",
];

const WORKER: [&str; 7] =
    ["worker_id", "status", "last_heartbeat", "heartbeat_age_s", "cpu_percent", "process_ram_bytes", "total_ram_bytes"];

/// Sends a request, checks the response against the OpenAPI document and checks the expected
/// fields.
async fn check(world: &World, method: &str, path: &str, body: &str, expected: &[(&str, &[&str])]) -> Value {
    let response = match method {
        "get" => world.get(path).await,
        _ => world.post(path, body).await,
    };
    assert_eq!(response.status, 200, "{path}: {}", response.json());
    let response = response.json();
    let document: Value = serde_json::from_str(squall_web::OPENAPI).unwrap();
    let route = path.split('?').next().unwrap().replace("/accounts/", "/{name}/");
    let schema = &document["paths"][&route][method]["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {route} is not described");
    check_schema(&document, schema, &response, path).unwrap_or_else(|error| panic!("{error}\n{response}"));
    for (place, fields) in expected {
        let object = response.pointer(place).and_then(Value::as_object);
        let object = object.unwrap_or_else(|| panic!("{path}: nothing at `{place}` of {response}"));
        for field in *fields {
            assert!(object.contains_key(*field), "{path}: no `{field}` at `{place}` of {response}");
        }
    }
    response
}

#[tokio::test]
async fn every_field_of_vikhry_is_present_and_described() {
    let world = world(2).await;
    check(&world, "get", "/health", "", &[("", &["status"])]).await;
    let ready: &[(&str, &[&str])] = &[
        ("", &["ready", "state", "epoch", "alive_workers", "workers", "workers_status"]),
        ("/workers_status/0", &WORKER),
    ];
    check(&world, "get", "/ready", "", ready).await;
    let spec = ["configured", "scenario_path", "vu_class", "params", "accepts_arbitrary_kwargs"];
    check(&world, "get", "/scenario/on_init_params", "", &[("", &spec)]).await;

    let made = ["resource_name", "count", "resource_ids"];
    check(&world, "post", "/create_resource", r#"{"name": "accounts", "count": 2}"#, &[("", &made)]).await;
    let ensured =
        ["resource_name", "target_count", "existing_count", "created_count", "current_count", "created_resource_ids"];
    check(&world, "post", "/ensure_resource", r#"{"name": "accounts", "count": 3}"#, &[("", &ensured)]).await;
    let pools: &[(&str, &[&str])] =
        &[("", &["generated_at", "count", "resources"]), ("/resources/0", &["resource_name", "count"])];
    check(&world, "get", "/resources", "", pools).await;
    let items: &[(&str, &[&str])] = &[
        ("", &["resource_name", "total", "count", "items"]),
        ("/items/0", &["resource_id", "resource_name", "created_at"]),
    ];
    check(&world, "get", "/resources/accounts/items", "", items).await;

    let added = ["requested", "added", "skipped_existing", "alive_workers", "aborted", "spawn_interval_ms"];
    let started: &[(&str, &[&str])] = &[
        (
            "",
            &[
                "epoch",
                "target_users",
                "init_params",
                "spawn_interval_ms",
                "prepare_result",
                "add_result",
                "start_result",
            ],
        ),
        ("/prepare_result", &["created", "target_users", "scenario_resources", "mode"]),
        ("/add_result", &added),
        ("/add_result/added/0", &["user_id", "worker_id"]),
        ("/start_result", &["workers", "delivered"]),
    ];
    let started = check(&world, "post", "/start_test", r#"{"users": 4}"#, started).await;
    assert_eq!(started["prepare_result"]["resources"], json!({"accounts": 3}));

    world.until(|metrics| metrics["metrics"][0]["aggregate"]["requests"].as_u64() > Some(0), "/metrics").await;
    let metrics: &[(&str, &[&str])] = &[
        ("", &["generated_at", "lag", "metrics", "count", "include_events"]),
        ("/lag", &["detected", "metrics_with_backlog", "dropped_subscriber_messages"]),
        ("/metrics/0", &["metric_id", "last_event_id", "aggregate", "aggregate_total", "events"]),
        ("/metrics/0/aggregate", &AGGREGATE),
        ("/metrics/0/aggregate_total", &AGGREGATE),
        ("/metrics/0/aggregate/top_result_codes/0", &["result_code", "count"]),
        ("/metrics/0/events/0", &["event_id", "data"]),
    ];
    let metrics = check(&world, "get", "/metrics?count=1000", "", metrics).await;
    // vikhry's UI takes every event whose source is not `step` for a request.
    let event = |metric: &str| {
        let metric = metrics["metrics"].as_array().unwrap().iter().find(|one| one["metric_id"] == metric).unwrap();
        metric["events"][0]["data"].clone()
    };
    let browse = event("browse");
    let fields = [&browse["source"], &browse["stage"], &browse["name"], &browse["status"], &browse["fatal"]];
    assert_eq!(fields, [&json!("http"), &json!("execute"), &json!("browse"), &json!(false), &json!(false)]);
    let failed = [&browse["result_code"], &browse["result_category"]];
    assert_eq!(failed, [&json!("HTTP_500"), &json!("protocol_error")], "the most frequent error: {browse}");
    assert_eq!(browse["time"], browse["latency_avg_ms"]);
    assert_eq!([&event("probe/depth")["source"], &event("depth")["source"]], [&json!("step"), &json!("step")]);
    let without = check(&world, "get", "/metrics?metric_id=browse&include_events=off", "", &[]).await;
    assert_eq!(
        (without["metrics"].as_array().map(Vec::len), &without["metrics"][0]["events"]),
        (Some(1), &Value::Null)
    );
    let history: &[(&str, &[&str])] = &[
        ("", &["generated_at", "range", "from_ts", "count", "points", "duration_ms"]),
        ("/points/0", &["ts", "users", "metrics"]),
        (
            "/points/0/metrics/browse",
            &["rps", "latency_avg_ms", "latency_median_ms", "latency_p95_ms", "latency_p99_ms"],
        ),
    ];
    let history = check(&world, "get", "/metrics/history?range=5m", "", history).await;
    let ts = history["points"][0]["ts"].as_u64().unwrap();
    let now = history["generated_at"].as_f64().unwrap();
    assert!((ts as f64) <= now + 1.0 && ts as f64 > now - 3600.0, "seconds since 1970: {history}");
    let later = world.get(&format!("/metrics/history?from_ts={}", ts + 100_000)).await.json();
    assert_eq!(later["count"], 0, "{later}");

    let worker: Vec<&str> = WORKER.into_iter().chain(["users_count", "active_users_count"]).collect();
    let workers: &[(&str, &[&str])] = &[("", &["generated_at", "count", "workers"]), ("/workers/0", &worker)];
    check(&world, "get", "/workers", "", workers).await;

    let changed: &[(&str, &[&str])] = &[
        ("", &["epoch", "target_users", "current_users", "spawn_interval_ms", "action", "result"]),
        ("/result", &added),
    ];
    check(&world, "post", "/change_users", r#"{"users": 6}"#, changed).await;
    world.until(|current| current["level"] == 6.0, "/api/v1/tests/current").await;
    check(&world, "post", "/change_users", r#"{"users": 6}"#, &[("/result", &["requested"])]).await;
    let removed: &[(&str, &[&str])] = &[("/result", &["requested", "removed", "skipped_missing"])];
    check(&world, "post", "/change_users", r#"{"users": 1}"#, removed).await;
    let stopped: &[(&str, &[&str])] = &[("", &["epoch"]), ("/stop_result", &["workers", "delivered"])];
    check(&world, "post", "/stop_test", "{}", stopped).await;
}

#[tokio::test]
async fn probes_have_aggregates_events_and_errors() {
    let world = world(1).await;
    let none = check(&world, "get", "/probes", "", &[("/lag", &["detected", "probes_with_backlog"])]).await;
    assert_eq!(none["probes"], json!([]));
    assert_eq!(world.post("/start_test", r#"{"users": 1}"#).await.status, 200);
    // Two samples succeed and one fails.
    world.until(|probes| probes["probes"][0]["aggregate"]["errors"].as_u64() > Some(0), "/probes").await;
    let fields: &[(&str, &[&str])] = &[
        ("", &["generated_at", "lag", "probes", "count", "include_events"]),
        ("/probes/0", &["probe_name", "last_event_id", "aggregate", "latest", "events"]),
        ("/probes/0/aggregate", &["window_s", "successes", "errors", "last_ts_ms", "last_status", "last_value"]),
        ("/probes/0/latest", &["ts_ms", "status", "value", "time", "error_type", "error_message"]),
        ("/probes/0/events/0/data", &["name", "ts_ms", "status", "time", "value"]),
    ];
    let probes = check(&world, "get", "/probes?count=1000", "", fields).await;
    assert_eq!(probes["probes"].as_array().map(Vec::len), Some(1), "only probes: {probes}");
    let events = probes["probes"][0]["events"].as_array().unwrap();
    let (first, third) = (&events[0]["data"], &events[2]["data"]);
    assert_eq!((&first["name"], &first["status"], &first["time"]), (&json!("depth"), &json!(true), &json!(3.0)));
    assert!((first["value"].as_f64().unwrap() - 42.0).abs() < 0.1, "{first}");
    assert_eq!((&third["status"], &third["value"]), (&json!(false), &Value::Null));
    assert_eq!((&third["error_type"], &third["error_message"]), (&json!("KeyError"), &json!("no queue")));
    assert_eq!(first["error_message"], Value::Null);

    let one = check(&world, "get", "/probes?probe_name=depth&count=1&include_events=true", "", &[]).await;
    assert_eq!(one["probes"][0]["events"].as_array().map(Vec::len), Some(1));
    let unknown = check(&world, "get", "/probes?probe_name=other", "", &[]).await;
    let nothing = &unknown["probes"][0];
    assert_eq!(
        (&nothing["probe_name"], &nothing["latest"], &nothing["events"]),
        (&json!("other"), &Value::Null, &json!([]))
    );
    let history = ["generated_at", "probe_name", "count", "last_event_id", "events"];
    let history = check(&world, "get", "/probes/history?probe_name=depth&count=2", "", &[("", &history)]).await;
    assert_eq!((&history["count"], history["events"].as_array().map(Vec::len)), (&json!(2), Some(2)));
    // Samples of probes do not count as requests.
    let metrics = world.get("/metrics?metric_id=browse").await.json();
    let total = &metrics["metrics"][0]["aggregate_total"]["requests"];
    assert_eq!(total.as_u64().map(|requests| requests % REQUESTS_PER_SECOND), Some(0), "{metrics}");
}

/// Checks `value` with the JSON Schema keywords that the document uses.
fn check_schema(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).ok_or_else(|| format!("no {name}"))?;
        return check_schema(document, schema, value, at);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let fits = options.iter().filter(|option| check_schema(document, option, value, at).is_ok()).count();
        return if fits == 1 { Ok(()) } else { Err(format!("{at}: {fits} of oneOf fit {value}")) };
    }
    let one_of = schema["enum"].as_array().is_none_or(|options| options.contains(value));
    if !one_of || schema.get("const").is_some_and(|only| only != value) {
        return Err(format!("{at}: {value} is not allowed"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits = |name: &str| name == kind || (name == "number" && kind == "integer");
    let typed = match &schema["type"] {
        Value::String(name) => fits(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(fits),
        _ => true,
    };
    if !typed {
        return Err(format!("{at}: {value} is not {}", schema["type"]));
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        check_schema(document, &schema["items"], item, &format!("{at}/{number}"))?;
    }
    let additional = &schema["additionalProperties"];
    for (name, field) in value.as_object().into_iter().flatten() {
        match (schema["properties"].get(name), additional) {
            (Some(schema), _) | (None, schema @ Value::Object(_)) => {
                check_schema(document, schema, field, &format!("{at}/{name}"))?;
            }
            (None, Value::Bool(false)) => return Err(format!("{at}: `{name}` is not described")),
            (None, _) => {}
        }
    }
    match schema["required"].as_array().into_iter().flatten().find(|name| value.get(name.as_str().unwrap()).is_none()) {
        Some(missing) => Err(format!("{at}: no {missing}")),
        None => Ok(()),
    }
}

#[test]
fn every_row_of_the_migration_tables_is_below_a_header() {
    let lines: Vec<&str> = include_str!("../../../../docs/migrate.md").lines().collect();
    let is_row = |line: &str| line.starts_with('|');
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| is_row(line)) {
        let begins_table = number == 0 || !is_row(lines[number - 1]);
        let has_header = lines.get(number + 1).is_some_and(|next| next.starts_with("|---"));
        assert!(!begins_table || has_header, "migrate.md:{}: {line}", number + 1);
    }
}

#[tokio::test]
async fn variable_of_a_test_is_no_template() {
    let param = StartableParam {
        name: "shelf".to_owned(),
        kind: StartableParam::KIND_VARIABLE.to_owned(),
        required: false,
        annotation: None,
        default: None,
    };
    let scenario = Some(StartableScenario { params: vec![param], ..startable_scenario() });
    let world = world_with(1, WebConfig { scenario, ..WebConfig::local("test") }).await;
    let body = json!({"users": 1, "params": {"shelf": "{{ env(\"HOME\") }}"}}).to_string();
    let error = world.post("/start_test", body).await.expect_error(400, "validation_error");
    assert_eq!(error["message"], "init_params: `shelf` cannot contain `{{`: a value is no template");
    assert_eq!(world.post("/start_test", r#"{"users": 1, "params": {"shelf": "{ env }"}}"#).await.status, 200);
}
