//! The server as a tower service: what `kube::Client` uses as its transport when both are in one process.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{Router, body::Body, response::Response};
use bytes::Bytes;
use http::Request;
use tower::{Service, ServiceExt};

/// Answers requests in process, as the administrator, without a socket.
#[derive(Clone)]
pub struct LocalService {
    router: Router,
}

impl std::fmt::Debug for LocalService {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LocalService").finish_non_exhaustive()
    }
}

impl LocalService {
    pub(crate) fn new(router: Router) -> Self {
        Self { router }
    }
}

impl<B> Service<Request<B>> for LocalService
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let router = self.router.clone();
        Box::pin(router.oneshot(request.map(Body::new)))
    }
}
