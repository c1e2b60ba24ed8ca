//! Every path that the API has. The list is made by the same calls that build the router, so that neither can miss one.

use axum::{
    Router,
    handler::Handler,
    middleware,
    routing::{MethodRouter, get, post},
};
use http::StatusCode;
use squall_coord::{FleetStores, MemoryFleetStores};
use std::sync::Arc;

use crate::{
    error::ApiError,
    guard::{Guard, guard},
    routes::{App, feed, looks, ops, resources, seed, tests},
};

/// The OpenAPI document, as `/openapi.json` serves it.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Method and path of everything that is served.
pub fn router_paths() -> Vec<(&'static str, &'static str)> {
    table::<MemoryFleetStores>().paths
}

type Shared<C> = Arc<App<C>>;

struct Table<C: FleetStores> {
    router: Router<Shared<C>>,
    paths: Vec<(&'static str, &'static str)>,
}

impl<C: FleetStores> Table<C> {
    fn get<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared<C>>) -> Self {
        self.add("get", path, get(handler))
    }

    fn post<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared<C>>) -> Self {
        self.add("post", path, post(handler))
    }

    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<Shared<C>>) -> Self {
        self.paths.push((method, path));
        self.router = self.router.route(path, handler);
        self
    }
}

fn table<C: FleetStores>() -> Table<C> {
    let table = Table { router: Router::new(), paths: Vec::new() };
    let table = table
        .get("/health", ops::health)
        .get("/healthz", ops::health)
        .get("/readyz", ops::readyz)
        .get("/prometheus", ops::prometheus)
        .get("/openapi.json", ops::openapi);
    let table = table
        .get("/ready", seed::ready)
        .post("/start_test", seed::start_test)
        .post("/change_users", seed::change_users)
        .post("/stop_test", seed::stop_test)
        .get("/metrics", looks::metrics)
        .get("/metrics/history", looks::history)
        .get("/ws/metrics", feed::live_feed)
        .get("/probes", looks::probes)
        .get("/probes/history", looks::probes_history)
        .get("/workers", seed::workers)
        .get("/scenario/on_init_params", seed::on_init_params);
    let table = table
        .get("/resources", resources::list)
        .get("/resources/{name}/items", resources::items)
        .post("/create_resource", resources::create)
        .post("/ensure_resource", resources::ensure);
    table
        .post("/api/v1/tests", tests::start)
        .get("/api/v1/tests/current", tests::current)
        .get("/api/v1/tests/{epoch}", tests::result)
        .post("/api/v1/tests/current/stop", tests::stop)
        .post("/api/v1/tests/current/scale", tests::scale)
        .post("/api/v1/tests/current/rate", tests::rate)
        .post("/api/v1/tests/current/pause", tests::pause)
        .post("/api/v1/tests/current/resume", tests::resume)
        .get("/api/v1/workers", tests::workers)
}

/// The whole API over one fleet.
pub(crate) fn router<C: FleetStores>(app: Shared<C>) -> Router {
    let watchman =
        Guard { token: app.config.token.clone(), tls: app.config.tls.is_some(), counters: app.live.counters.clone() };
    table::<C>()
        .router
        .fallback(async || ApiError::not_found("there is no such path; /openapi.json lists all"))
        .method_not_allowed_fallback(async || {
            let message = "this path is for another method; /openapi.json lists all";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        })
        .layer(middleware::from_fn_with_state(watchman, guard))
        .with_state(app)
}
