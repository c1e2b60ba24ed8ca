//! The routes of workers that do not share the store with the server: they offer their slots here.
//! It keeps nothing. [`crate::worker`] calls the routes if it was given the URL of a server.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use squall_coord::SlotStore;

use super::{
    ServerState,
    api::{ApiResponse, json_response, text_response},
    refusal::Refusal,
    sessions::read_json,
};
use crate::offer_message::{LeaveMessage, OfferAnswer, OfferMessage};

/// An offer lists up to 1,024 sessions.
const MAX_BODY: usize = 1 << 20;

pub(crate) async fn offer<S: SlotStore>(
    state: &ServerState<S>,
    request: Request<Incoming>,
) -> Result<ApiResponse, Refusal> {
    let message: OfferMessage = read_json(request, MAX_BODY).await?;
    let (offer, ttl) =
        message.into_offer().ok_or_else(|| Refusal::Body("a name has other characters, or no version".to_owned()))?;
    let answer = OfferAnswer::new(&state.store.offer(&offer, ttl).await?);
    Ok(json_response(StatusCode::OK, &serde_json::to_value(&answer).expect("texts only")))
}

pub(crate) async fn leave<S: SlotStore>(
    state: &ServerState<S>,
    request: Request<Incoming>,
) -> Result<ApiResponse, Refusal> {
    let message: LeaveMessage = read_json(request, MAX_BODY).await?;
    let worker = message.worker().ok_or_else(|| Refusal::Body("a name has other characters".to_owned()))?;
    state.store.leave_worker(&worker).await?;
    Ok(text_response(StatusCode::NO_CONTENT, String::new()))
}
