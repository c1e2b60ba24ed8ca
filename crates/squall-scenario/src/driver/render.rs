//! Renders the changing parts of a request into buffers that are used again and again.

use squall_http::PreparedRequest;
use std::cell::RefCell;

use super::PreparedStep;
use crate::{
    build::encode_header,
    compiled_scenario::{CompiledRequest, HeaderEncoding, RequestTemplate},
    template::{RenderContext, UnsetVariableError},
};

/// Buffers of one thread; only one request is rendered at a time.
#[derive(Default)]
pub(super) struct RenderBuffers {
    path: String,
    headers: Vec<String>,
    body: String,
}

/// Why a request could not be made.
#[derive(Debug)]
pub(super) enum RenderError {
    Unset(UnsetVariableError),
    /// The values make something that cannot be sent, such as a line break in a header.
    InvalidRequest(String),
}

impl From<UnsetVariableError> for RenderError {
    fn from(unset: UnsetVariableError) -> RenderError {
        RenderError::Unset(unset)
    }
}

/// A rendered request; goes back to where it came from when it is no longer needed.
pub(super) struct RenderedRequest<'l> {
    prepared: Option<PreparedRequest>,
    return_to: &'l RefCell<Vec<PreparedRequest>>,
}

impl RenderedRequest<'_> {
    pub(super) fn get(&self) -> &PreparedRequest {
        self.prepared.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for RenderedRequest<'_> {
    fn drop(&mut self) {
        self.return_to.borrow_mut().extend(self.prepared.take());
    }
}

impl RenderBuffers {
    /// The request as it is now.
    pub(super) fn render<'l>(
        &mut self,
        spec: &CompiledRequest,
        dynamic: &RequestTemplate,
        lane: &'l PreparedStep,
        context: &mut RenderContext<'_>,
    ) -> Result<RenderedRequest<'l>, RenderError> {
        self.render_parts(dynamic, context)?;
        let path = self.path.strip_prefix(dynamic.origin.as_str()).unwrap_or(&self.path);
        let names = dynamic.headers.iter().map(|header| header.name.as_str());
        let headers: Vec<(&str, &str)> = names.zip(self.headers.iter().map(String::as_str)).collect();
        let body = if dynamic.body.is_some() { self.body.as_bytes() } else { &spec.constant.body };
        let idle = lane.idle_requests.borrow_mut().pop();
        let mut prepared = idle.unwrap_or_else(|| lane.prepared.clone());
        match prepared.update(path, &headers, body) {
            Ok(()) => Ok(RenderedRequest { prepared: Some(prepared), return_to: &lane.idle_requests }),
            Err(error) => Err(RenderError::InvalidRequest(error.to_string())),
        }
    }

    fn render_parts(
        &mut self,
        dynamic: &RequestTemplate,
        context: &mut RenderContext<'_>,
    ) -> Result<(), UnsetVariableError> {
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
