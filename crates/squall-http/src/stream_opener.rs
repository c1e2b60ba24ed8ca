//! Opens responses that are read while they arrive: sends a request on a connection of its own and
//! reads only the head of the response. It follows no redirects. The drivers' request runner calls it
//! in place of a [`crate::Session`].

use std::future::poll_fn;
use std::time::Instant;

use crate::connector::Connector;
use crate::cookies::Cookies;
use crate::dial::{self, DialTarget};
use crate::error::HttpError;
use crate::http1_connection::ExchangeOptions;
use crate::request::PreparedRequest;
use crate::response::{Exchange, ExchangePhases};
use crate::streaming_response::StreamingResponse;

/// Opens one streamed response of a virtual user, with the user's cookies.
#[derive(Debug)]
pub struct StreamOpener {
    connector: Connector,
    cookies: Cookies,
    /// The response to the last request, or the part of it that has arrived.
    response: Option<StreamingResponse>,
}

/// When the phases of one opening ended.
#[derive(Default)]
struct OpeningTimes {
    dialled: ExchangePhases,
    connected: Option<Instant>,
    first_byte: Option<Instant>,
}

impl OpeningTimes {
    fn phases(&self, ended: Instant) -> ExchangePhases {
        let Some(connected) = self.connected else { return self.dialled };
        let first_byte = self.first_byte.unwrap_or(ended);
        ExchangePhases { first_byte: first_byte - connected, body: ended - first_byte, ..self.dialled }
    }
}

impl StreamOpener {
    pub fn new(connector: &Connector, cookies: Cookies) -> StreamOpener {
        StreamOpener { connector: connector.clone(), cookies, response: None }
    }

    /// Sends `request` and reads the head of the response, all within the request's limit. The
    /// exchange ends with the head. Closes the connection of the request before.
    ///
    /// After a success, [`StreamOpener::into_response`] returns the response with its body.
    pub async fn send(&mut self, request: &PreparedRequest) -> Exchange<'_> {
        self.response = None;
        let started = Instant::now();
        let config = self.connector.config();
        let (timeout, record_phases) = (request.timeout.unwrap_or(config.timeout), config.record_phases);
        let options = ExchangeOptions { deadline: started + timeout, timeout, record_phases };
        let mut times = OpeningTimes::default();
        let opening = tokio::time::timeout_at(options.deadline.into(), self.open(request, options, &mut times));
        let opened = opening.await.unwrap_or(Err(HttpError::Timeout { after: timeout }));
        let ended = Instant::now();
        let result = opened.and_then(|()| self.finish_head(request));
        let (bytes_in, bytes_out) = self.bytes_transferred();
        if result.is_err() {
            self.response = None;
        }
        Exchange {
            result: result.map(|()| self.response.as_ref().expect("an opened response is kept").head()),
            started,
            ended,
            bytes_in,
            bytes_out,
            phases: record_phases.then(|| times.phases(ended)),
            new_connection: true,
        }
    }

    /// The response to the last request; `None` if it failed.
    pub fn into_response(self) -> Option<StreamingResponse> {
        self.response
    }

    /// Bytes read and written by an exchange whose future was dropped; its connection is closed.
    pub fn close_abandoned(&mut self) -> (u64, u64) {
        let transferred = self.bytes_transferred();
        self.response = None;
        transferred
    }

    fn bytes_transferred(&self) -> (u64, u64) {
        self.response.as_ref().map_or((0, 0), |response| (response.received(), response.sent()))
    }

    async fn open(
        &mut self,
        request: &PreparedRequest,
        options: ExchangeOptions,
        times: &mut OpeningTimes,
    ) -> Result<(), HttpError> {
        let target = DialTarget::new(&self.connector, &request.origin).force_http1();
        let io = dial::dial(target, options, &mut times.dialled).await?.io;
        let connected = *times.connected.insert(Instant::now());
        let mut with_cookies = Vec::new();
        let wire = self.cookies.render_request(request, connected, &mut with_cookies);
        // Kept from here on, so that its bytes count if the exchange fails or is dropped.
        let response = self.response.insert(StreamingResponse::new(io, self.connector.config(), request));
        response.write_request(wire).await?;
        while !response.has_head() {
            poll_fn(|cx| response.poll_read_once(cx)).await?;
            times.first_byte.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Stores cookies and prepares the decoding of the body, outside the measured time.
    fn finish_head(&mut self, request: &PreparedRequest) -> Result<(), HttpError> {
        let config = self.connector.config();
        let response = self.response.as_mut().expect("an opened response is kept");
        if response.sets_cookie() && config.cookies {
            self.cookies.store_from_response(request, response.head().headers());
        }
        if config.decompress {
            response.start_decoding(config.max_body_bytes)?;
        }
        Ok(())
    }
}
