//! Where a worker offers its slots: a store that it shares with the servers, or a server that has the
//! store in its memory. It decides nothing. The worker's loop calls it.

use std::{future::Future, io, time::Duration};

use serde::Serialize;
use squall_coord::{OfferOutcome, SlotOffer, SlotStore, SlotWorkerId, StoreError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::offer_message::{LeaveMessage, OfferAnswer, OfferMessage};

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_RESPONSE: u64 = 1 << 20;

/// Takes a worker's offers.
pub trait SlotOffers: Clone + Send + Sync + 'static {
    /// As [`SlotStore::offer`].
    fn offer(&self, offer: &SlotOffer, ttl: Duration) -> impl Future<Output = Result<OfferOutcome, StoreError>> + Send;

    /// As [`SlotStore::leave_worker`].
    fn leave_worker(&self, worker: &SlotWorkerId) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<S: SlotStore> SlotOffers for S {
    fn offer(&self, offer: &SlotOffer, ttl: Duration) -> impl Future<Output = Result<OfferOutcome, StoreError>> + Send {
        SlotStore::offer(self, offer, ttl)
    }

    fn leave_worker(&self, worker: &SlotWorkerId) -> impl Future<Output = Result<(), StoreError>> + Send {
        SlotStore::leave_worker(self, worker)
    }
}

/// A server that takes offers over HTTP.
#[derive(Clone)]
pub struct ServerOffers {
    /// `host:port`.
    address: String,
    /// The secret of an API key with the scope worker.
    secret: Option<String>,
}

/// Why the server did not take an offer.
#[derive(Debug, thiserror::Error)]
enum OfferError {
    #[error("the server cannot be reached")]
    Connection(#[from] io::Error),
    #[error("the server does not answer within 5 s")]
    Timeout,
    #[error("the server refused the offer with status {0}: {1}")]
    Refused(u16, String),
    #[error("the answer is not one of a grid server")]
    Malformed,
}

impl From<OfferError> for StoreError {
    fn from(error: OfferError) -> Self {
        match error {
            OfferError::Refused(..) | OfferError::Malformed => StoreError::Rejected(Box::new(error)),
            _ => StoreError::Unreachable(Box::new(error)),
        }
    }
}

impl ServerOffers {
    /// The server at `http://HOST:PORT`; `None` if the URL is another one.
    pub fn new(url: &str, secret: Option<String>) -> Option<Self> {
        let uri: http::Uri = url.parse().ok()?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/"))?;
        Some(Self { address: format!("{host}:{}", uri.port_u16().unwrap_or(80)), secret })
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> Result<Vec<u8>, OfferError> {
        let posting = self.exchange(path, serde_json::to_string(body).expect("texts and numbers only"));
        tokio::time::timeout(TIMEOUT, posting).await.map_err(|_| OfferError::Timeout)?
    }

    async fn exchange(&self, path: &str, body: String) -> Result<Vec<u8>, OfferError> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let authorization = self.secret.as_ref().map(|secret| format!("authorization: Bearer {secret}\r\n"));
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            self.address,
            authorization.unwrap_or_default(),
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(MAX_RESPONSE).read_to_end(&mut response).await?;
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&response).map_err(|_| OfferError::Malformed)?;
        let (httparse::Status::Complete(length), Some(status)) = (parsed, head.code) else {
            return Err(OfferError::Malformed);
        };
        let body = response.split_off(length);
        match status {
            200..300 => Ok(body),
            status => Err(OfferError::Refused(status, String::from_utf8_lossy(&body).into_owned())),
        }
    }
}

impl SlotOffers for ServerOffers {
    async fn offer(&self, offer: &SlotOffer, ttl: Duration) -> Result<OfferOutcome, StoreError> {
        let body = self.post("/v1/workers/offer", &OfferMessage::new(offer, ttl)).await?;
        let answer: OfferAnswer = serde_json::from_slice(&body).map_err(|_| OfferError::Malformed)?;
        Ok(answer.outcome())
    }

    async fn leave_worker(&self, worker: &SlotWorkerId) -> Result<(), StoreError> {
        self.post("/v1/workers/leave", &LeaveMessage::new(worker)).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_of_a_plain_server_are_taken() {
        assert_eq!(ServerOffers::new("http://grid:8080", None).unwrap().address, "grid:8080");
        assert_eq!(ServerOffers::new("http://10.0.0.1/", None).unwrap().address, "10.0.0.1:80");
        for wrong in ["https://grid", "grid:8080", "http://grid/path", "redis://grid", ""] {
            assert!(ServerOffers::new(wrong, None).is_none(), "{wrong}");
        }
    }
}
