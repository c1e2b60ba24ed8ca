//! Renders the changing parts of a request into buffers that are used again and again.

use squall_http::PreparedRequest;
use std::cell::RefCell;

use super::LaneStep;
use crate::{
    build::encode_header,
    program::{Dynamic, HeaderEncoding, RequestSpec},
    template::{Context, Unset},
};

/// Buffers of one thread; only one request is rendered at a time.
#[derive(Default)]
pub(super) struct Scratch {
    path: String,
    headers: Vec<String>,
    body: String,
}

/// Why a request could not be made.
#[derive(Debug)]
pub(super) enum RenderError {
    Unset(Unset),
    /// The values make something that cannot be sent, such as a line break in a header.
    Refused(String),
}

impl From<Unset> for RenderError {
    fn from(unset: Unset) -> RenderError {
        RenderError::Unset(unset)
    }
}

/// A rendered request; goes back to where it came from when it is no longer needed.
pub(super) struct Rendered<'l> {
    prepared: Option<PreparedRequest>,
    home: &'l RefCell<Vec<PreparedRequest>>,
}

impl Rendered<'_> {
    pub(super) fn get(&self) -> &PreparedRequest {
        self.prepared.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Rendered<'_> {
    fn drop(&mut self) {
        self.home.borrow_mut().extend(self.prepared.take());
    }
}

impl Scratch {
    /// The request as it is now.
    pub(super) fn render<'l>(
        &mut self,
        spec: &RequestSpec,
        dynamic: &Dynamic,
        lane: &'l LaneStep,
        context: &mut Context<'_>,
    ) -> Result<Rendered<'l>, RenderError> {
        self.fill(dynamic, context)?;
        let path = self.path.strip_prefix(dynamic.origin.as_str()).unwrap_or(&self.path);
        let names = dynamic.headers.iter().map(|header| header.name.as_str());
        let headers: Vec<(&str, &str)> = names.zip(self.headers.iter().map(String::as_str)).collect();
        let body = if dynamic.body.is_some() { self.body.as_bytes() } else { &spec.constant.body };
        let idle = lane.idle.borrow_mut().pop();
        let mut prepared = idle.unwrap_or_else(|| lane.prepared.clone());
        match prepared.update(path, &headers, body) {
            Ok(()) => Ok(Rendered { prepared: Some(prepared), home: &lane.idle }),
            Err(error) => Err(RenderError::Refused(error.to_string())),
        }
    }

    fn fill(&mut self, dynamic: &Dynamic, context: &mut Context<'_>) -> Result<(), Unset> {
        self.path.clear();
        dynamic.path.render(context, &mut self.path)?;
        self.headers.resize_with(dynamic.headers.len(), String::new);
        for (header, out) in dynamic.headers.iter().zip(&mut self.headers) {
            out.clear();
            header.value.render(context, out)?;
            if header.encoding != HeaderEncoding::Plain {
                *out = encode_header(out, header.encoding);
            }
        }
        self.body.clear();
        match &dynamic.body {
            Some(body) => body.render(context, &mut self.body),
            None => Ok(()),
        }
    }
}
