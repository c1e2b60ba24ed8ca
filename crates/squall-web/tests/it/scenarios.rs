//! Tests of the scenarios that the orchestrator offers, and of runs that start again.

use serde_json::json;
use squall_history::RunFolder;
use squall_web::{
    CatalogError, OrderedRun, RunHistory, ScenarioCatalog, ScenarioDescription, SharedCatalog, StartOrder, WebConfig,
};
use std::sync::Arc;

use crate::support::{bundle, world_with};

/// Offers `shop` and refuses any rate.
struct Shop;

impl ScenarioCatalog for Shop {
    fn names(&self) -> Result<Vec<String>, CatalogError> {
        Ok(vec!["shop".to_owned()])
    }

    fn describe(&self, name: &str) -> Result<ScenarioDescription, CatalogError> {
        match name {
            "shop" => {
                Ok(ScenarioDescription { params: vec![], accepts_any_param: false, has_target: true, bundle: bundle() })
            }
            _ => Err(CatalogError::Unknown(name.to_owned())),
        }
    }

    fn build(&self, name: &str, order: &StartOrder) -> Result<OrderedRun, CatalogError> {
        if order.rate.is_some() {
            let field = Some("rate".to_owned());
            return Err(CatalogError::Refused { message: "this scenario has users".to_owned(), field });
        }
        let ScenarioDescription { bundle, .. } = self.describe(name)?;
        Ok(OrderedRun { bundle, description: "5 users".to_owned(), command: format!("squall test start {name}") })
    }
}

fn config() -> WebConfig {
    WebConfig { catalog: Some(SharedCatalog(Arc::new(Shop))), ..WebConfig::local("test") }
}

#[tokio::test]
async fn offered_scenario_is_described_checked_and_started() {
    let world = world_with(1, config()).await;
    assert_eq!(world.get("/api/v1/scenarios").await.json(), json!({"scenarios": ["shop"]}));
    let shop = world.get("/api/v1/scenarios/shop").await.json();
    assert_eq!((&shop["target"], &shop["plan"]["stages"]), (&json!("http://127.0.0.1:1"), &json!([[600.0, 5.0, 5.0]])));
    let checked = world.post("/api/v1/scenarios/shop/check", "{}").await.json();
    assert_eq!((&checked["command"], &checked["description"]), (&json!("squall test start shop"), &json!("5 users")));
    assert_eq!(world.get("/api/v1/tests/current").await.json()["epoch"], 0, "a check starts nothing");
    let started = world.post("/api/v1/scenarios/shop/start", "{}").await;
    assert_eq!((started.status, &started.json()["epoch"]), (201, &json!(1)));
    world.until(|test| test["state"] == "RUNNING", "/api/v1/tests/current").await;
    world.post("/api/v1/scenarios/shop/start", "{}").await.expect_error(409, "invalid_state");
}

#[tokio::test]
async fn refusal_names_its_field_and_an_unknown_scenario_is_not_found() {
    let world = world_with(1, config()).await;
    for path in ["check", "start"] {
        let refused = world.post(&format!("/api/v1/scenarios/shop/{path}"), r#"{"rate": "5"}"#).await;
        let error = refused.expect_error(400, "bad_request");
        assert_eq!(
            (&error["details"]["field"], &error["message"]),
            (&json!("rate"), &json!("this scenario has users"))
        );
    }
    world.get("/api/v1/scenarios/other").await.expect_error(404, "not_found");
    world.post("/api/v1/scenarios/shop/check", r#"{"user": 5}"#).await.expect_error(400, "validation_error");
    let none = world_with(1, WebConfig::local("test")).await;
    assert_eq!(none.get("/api/v1/scenarios").await.json(), json!({"scenarios": []}));
    let error = none.get("/api/v1/scenarios/shop").await.expect_error(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("--scenarios DIR"), "{error}");
}

#[tokio::test]
async fn finished_run_starts_again_from_the_store_and_from_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let history = RunHistory {
        folder: Arc::new(RunFolder::new(folder.path(), 1 << 20)),
        baseline: folder.path().join("baseline.json"),
        saves_runs: true,
    };
    let world = world_with(1, WebConfig { history: Some(history), ..config() }).await;
    world.post("/api/v1/tests/1/again", "{}").await.expect_error(404, "not_found");
    world.post("/api/v1/scenarios/shop/start", "{}").await;
    world.until(|test| test["live"]["requests_total"].as_u64() > Some(0), "/api/v1/tests/current").await;
    world.post("/api/v1/tests/1/again", "{}").await.expect_error(409, "invalid_state");
    world.post("/api/v1/tests/current/stop", "{}").await;
    let runs = world.until(|list| list["total"] == 1, "/api/v1/runs").await;
    assert_eq!(runs["runs"][0]["can_start"], true);
    let again = world.post("/api/v1/tests/1/again", "{}").await;
    assert_eq!((again.status, &again.json()["epoch"]), (201, &json!(2)));
    world.until(|test| test["live"]["requests_total"].as_u64() > Some(0), "/api/v1/tests/current").await;
    world.post("/api/v1/tests/current/stop", "{}").await;
    world.until(|test| test["state"] == "IDLE", "/api/v1/tests/current").await;
    let path = format!("/api/v1/runs/{}/again", runs["runs"][0]["id"].as_str().unwrap());
    let again = world.post(&path, "{}").await;
    assert_eq!((again.status, &again.json()["epoch"]), (201, &json!(3)), "{}", again.json());
    let test = world.until(|test| test["epoch"] == 3 && test["name"] == "shop", "/api/v1/tests/current").await;
    assert_eq!(test["driven_by"], "users");
}

#[tokio::test]
async fn run_that_was_saved_without_its_bundle_cannot_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::new(RunFolder::new(folder.path(), 1 << 20));
    let text = include_str!("../../../squall-history/tests/it/result.json");
    let id = runs.save(&squall_report::ResultFile::parse(text).unwrap()).unwrap().id;
    let history = RunHistory { folder: runs, baseline: folder.path().join("baseline.json"), saves_runs: false };
    let world = world_with(1, WebConfig { history: Some(history), ..config() }).await;
    assert_eq!(world.get(&format!("/api/v1/runs/{id}")).await.json()["can_start"], false);
    let error = world.post(&format!("/api/v1/runs/{id}/again"), "{}").await.expect_error(409, "invalid_state");
    assert!(error["message"].as_str().unwrap().contains("`squall run` does not"), "{error}");
}
