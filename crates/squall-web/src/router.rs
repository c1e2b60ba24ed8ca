//! The routes of the API and of the web UI's files. The same calls build the router and the list of
//! paths of the API, so that both have every route.

use axum::{
    Router,
    handler::Handler,
    middleware,
    routing::{MethodRouter, delete, get, post},
};
use http::StatusCode;
use squall_coord::{FleetStores, MemoryFleetStores};
use std::sync::Arc;

use crate::{
    access_guard::{AccessGuard, check_access},
    error::ApiError,
    routes::{
        ApiState, api_v1, compare, dashboard, fleet, fleet_actions, grid, live, metric, ops, resources, runs,
        scenarios, sign_in, streams, ui, vikhry, vikhry_feed, vikhry_metrics,
    },
};

/// The OpenAPI document, as `/openapi.json` serves it.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Method and path of every route.
pub fn router_paths() -> Vec<(&'static str, &'static str)> {
    api_route_table::<MemoryFleetStores>().paths
}

type SharedApiState<C> = Arc<ApiState<C>>;

struct ApiRouteTable<C: FleetStores> {
    router: Router<SharedApiState<C>>,
    paths: Vec<(&'static str, &'static str)>,
}

impl<C: FleetStores> ApiRouteTable<C> {
    fn get<T: 'static>(self, path: &'static str, handler: impl Handler<T, SharedApiState<C>>) -> Self {
        self.add("get", path, get(handler))
    }

    fn post<T: 'static>(self, path: &'static str, handler: impl Handler<T, SharedApiState<C>>) -> Self {
        self.add("post", path, post(handler))
    }

    fn delete<T: 'static>(self, path: &'static str, handler: impl Handler<T, SharedApiState<C>>) -> Self {
        self.add("delete", path, delete(handler))
    }

    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<SharedApiState<C>>) -> Self {
        self.paths.push((method, path));
        self.router = self.router.route(path, handler);
        self
    }
}

fn api_route_table<C: FleetStores>() -> ApiRouteTable<C> {
    let table = ApiRouteTable { router: Router::new(), paths: Vec::new() };
    let table = table
        .get("/health", ops::health)
        .get("/healthz", ops::health)
        .get("/readyz", ops::readyz)
        .get("/prometheus", ops::prometheus)
        .get("/metrics", ops::metrics)
        .get("/openapi.json", ops::openapi);
    let table = table
        .get("/ready", vikhry::ready)
        .post("/start_test", vikhry::start_test)
        .post("/change_users", vikhry::change_users)
        .post("/stop_test", vikhry::stop_test)
        .get("/metrics/history", vikhry_metrics::history)
        .get("/ws/metrics", vikhry_feed::subscribe)
        .get("/probes", vikhry_metrics::probes)
        .get("/probes/history", vikhry_metrics::probes_history)
        .get("/workers", vikhry::workers)
        .get("/scenario/on_init_params", vikhry::on_init_params);
    let table = table
        .get("/resources", resources::list)
        .get("/resources/{name}/items", resources::items)
        .post("/create_resource", resources::create)
        .post("/ensure_resource", resources::ensure);
    let table = table
        .get("/api/v1/runs", runs::list)
        .get("/api/v1/runs/{id}", runs::show)
        .delete("/api/v1/runs/{id}", runs::delete)
        .get("/api/v1/runs/{id}/result", runs::result)
        .get("/api/v1/runs/{id}/report", runs::report)
        .get("/api/v1/runs/{id}/histograms", runs::histograms)
        .post("/api/v1/runs/{id}/note", runs::note)
        .post("/api/v1/runs/{id}/again", runs::again)
        .get("/api/v1/compare", compare::show)
        .get("/api/v1/compare/report", compare::report);
    let table = table
        .get("/api/v1/scenarios", scenarios::list)
        .get("/api/v1/scenarios/{name}", scenarios::describe)
        .post("/api/v1/scenarios/{name}/check", scenarios::check)
        .post("/api/v1/scenarios/{name}/start", scenarios::start)
        .get("/api/v1/streams", streams::list)
        .post("/api/v1/streams/{processor}/partitions/{partition}/release", streams::release)
        .get("/api/v1/grid", grid::show)
        .post("/api/v1/grid/sessions/{id}/end", grid::end_session)
        .post("/api/v1/grid/workers/{browser}/{name}/drain", grid::drain);
    table
        .post("/api/v1/tests", api_v1::start)
        .post("/api/v1/tests/{epoch}/again", api_v1::again)
        .get("/api/v1/tests/current", api_v1::current)
        .get("/api/v1/tests/current/dashboard", dashboard::dashboard)
        .get("/api/v1/tests/{epoch}", api_v1::result)
        .post("/api/v1/tests/current/stop", api_v1::stop)
        .post("/api/v1/tests/current/scale", api_v1::scale)
        .post("/api/v1/tests/current/rate", api_v1::rate)
        .post("/api/v1/tests/current/pause", api_v1::pause)
        .post("/api/v1/tests/current/resume", api_v1::resume)
        .post("/api/v1/tests/current/notes", fleet_actions::add_note)
        .get("/api/v1/tests/current/metrics/{id}", metric::metric)
        .get("/api/v1/workers", api_v1::workers)
        .get("/api/v1/fleet", fleet::show)
        .post("/api/v1/workers/{id}/drain", fleet_actions::drain)
        .get("/api/v1/live", live::subscribe)
        .get("/api/v1/tests/{epoch}/report", api_v1::report)
        .get("/api/v1/session", sign_in::session)
        .post("/api/v1/sign-in", sign_in::sign_in)
        .post("/api/v1/sign-out", sign_in::sign_out)
}

/// The router of the API of one fleet.
pub(crate) fn router<C: FleetStores>(app: SharedApiState<C>) -> Router {
    let guard = AccessGuard {
        token: app.config.token.clone(),
        allowed_origins: app.config.allowed_origins.clone(),
        tls: app.config.tls.is_some(),
        wrong_tokens: app.wrong_tokens.clone(),
        counters: app.watcher.counters.clone(),
    };
    api_route_table::<C>()
        .router
        .route("/", get(ui::index))
        .route("/assets/{name}", get(ui::asset))
        .route("/api/docs", get(ui::api_docs))
        .fallback(async || ApiError::not_found("unknown path; /openapi.json lists all paths"))
        .method_not_allowed_fallback(async || {
            let message = "this path does not support the method; /openapi.json lists all methods";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        })
        .layer(middleware::from_fn_with_state(guard, check_access))
        .with_state(app)
}
