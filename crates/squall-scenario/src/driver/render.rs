//! Renders the changing parts of a request into reused buffers. Sends nothing. Called by
//! [`FlowRun`](super::flow_run::FlowRun) before each request with a template.

use squall_http::PreparedRequest;
use std::cell::RefCell;

use super::PreparedStep;
use crate::{
    build::encode_header,
    compiled_scenario::{CompiledRequest, HeaderEncoding, RequestTemplate},
    template::{RenderContext, RenderTemplateError},
};

/// The buffers of one thread, which renders one request at a time.
#[derive(Default)]
pub(super) struct RenderBuffers {
    path: String,
    headers: Vec<String>,
    body: String,
}

/// Why a request could not be rendered.
#[derive(Debug)]
pub(super) enum RenderError {
    Template(RenderTemplateError),
    /// The values make a request that cannot be sent, such as a line break in a header.
    InvalidRequest(String),
}

impl From<RenderTemplateError> for RenderError {
    fn from(error: RenderTemplateError) -> RenderError {
        RenderError::Template(error)
    }
}

/// Requests that no user sends. Boxed, because a user's future holds the one that it sends.
#[allow(clippy::vec_box)]
pub(super) type IdleRequests = RefCell<Vec<Box<PreparedRequest>>>;

/// A rendered request. Dropping it returns it to the idle requests of its step.
pub(super) struct RenderedRequest<'l> {
    prepared: Option<Box<PreparedRequest>>,
    return_to: &'l IdleRequests,
}

impl RenderedRequest<'_> {
    pub(super) fn get(&self) -> &PreparedRequest {
        self.prepared.as_ref().expect("only drop takes it")
    }
}

impl Drop for RenderedRequest<'_> {
    fn drop(&mut self) {
        self.return_to.borrow_mut().extend(self.prepared.take());
    }
}

impl RenderBuffers {
    /// Renders a request with the user's present values.
    pub(super) fn render<'l>(
        &mut self,
        compiled: &CompiledRequest,
        template: &RequestTemplate,
        step: &'l PreparedStep,
        context: &mut RenderContext<'_>,
    ) -> Result<RenderedRequest<'l>, RenderError> {
        self.render_parts(template, context)?;
        let path = self.path.strip_prefix(template.origin.as_str()).unwrap_or(&self.path);
        let names = template.headers.iter().map(|header| header.name.as_str());
        let headers: Vec<(&str, &str)> = names.zip(self.headers.iter().map(String::as_str)).collect();
        let body = if template.body.is_some() { self.body.as_bytes() } else { &compiled.constant.body };
        let idle = step.idle_requests.borrow_mut().pop();
        let mut prepared = idle.unwrap_or_else(|| Box::new(step.base_request.clone()));
        match prepared.update(path, &headers, body) {
            Ok(()) => Ok(RenderedRequest { prepared: Some(prepared), return_to: &step.idle_requests }),
            Err(error) => Err(RenderError::InvalidRequest(error.to_string())),
        }
    }

    fn render_parts(
        &mut self,
        template: &RequestTemplate,
        context: &mut RenderContext<'_>,
    ) -> Result<(), RenderTemplateError> {
        self.path.clear();
        template.path.render(context, &mut self.path)?;
        self.headers.resize_with(template.headers.len(), String::new);
        for (header, out) in template.headers.iter().zip(&mut self.headers) {
            out.clear();
            header.value.render(context, out)?;
            if header.encoding != HeaderEncoding::Plain {
                *out = encode_header(out, header.encoding);
            }
        }
        self.body.clear();
        match &template.body {
            Some(body) => body.render(context, &mut self.body),
            None => Ok(()),
        }
    }
}
