//! A tower layer that makes a healthy server misbehave, by a seed: what clients must live with.
//!
//! Stands in front of [`crate::LocalService`] or any other service with the same requests; decides per request with
//! one generator, so that one seed and one order of requests give one run.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures::StreamExt;
use http::{Method, Request};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tower::{Layer, Service};

use crate::error::{ApiError, Subject};

/// How often what goes wrong. Chances are between 0 and 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of all decisions.
    pub seed: u64,
    /// A write is refused with 409, as if another write had come first. Not given to creations.
    pub conflict: f64,
    /// A request is refused with 429 and `Retry-After: 1`.
    pub too_many: f64,
    /// A request fails with 500 before it is carried out.
    pub failed: f64,
    /// A write is carried out and its answer lost: the client sees 500.
    pub lost_answer: f64,
    /// A watch breaks off after a few of its pieces.
    pub lost_watch: f64,
    /// A request is answered only after a pause.
    pub slow: f64,
    /// The longest such pause.
    pub slowness: Duration,
}

/// Puts [`Faults`] in front of a service.
#[derive(Clone, Debug)]
pub struct FaultLayer {
    faults: Faults,
    dice: Arc<Mutex<StdRng>>,
}

impl FaultLayer {
    /// All services made by this layer share one generator.
    pub fn new(faults: Faults) -> Self {
        Self {
            faults,
            dice: Arc::new(Mutex::new(StdRng::seed_from_u64(faults.seed))),
        }
    }
}

impl<S> Layer<S> for FaultLayer {
    type Service = FaultService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FaultService {
            inner,
            faults: self.faults,
            dice: Arc::clone(&self.dice),
        }
    }
}

/// A service that fails now and then.
#[derive(Clone, Debug)]
pub struct FaultService<S> {
    inner: S,
    faults: Faults,
    dice: Arc<Mutex<StdRng>>,
}

/// What happens to one request. Everything is decided at once, so that the generator moves by the same steps whatever
/// the outcome.
struct Fate {
    pause: Option<Duration>,
    refusal: Option<ApiError>,
    answer_is_lost: bool,
    watch_ends_after: Option<usize>,
}

impl<S> FaultService<S> {
    fn fate<B>(&self, request: &Request<B>) -> Fate {
        let writes = matches!(
            *request.method(),
            Method::PUT | Method::PATCH | Method::DELETE | Method::POST
        );
        let replaces = writes && *request.method() != Method::POST;
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let mut happens = |chance: f64| dice.random_bool(chance.clamp(0.0, 1.0));
        let conflict = happens(self.faults.conflict);
        let too_many = happens(self.faults.too_many);
        let failed = happens(self.faults.failed);
        let lost_answer = happens(self.faults.lost_answer);
        let lost_watch = happens(self.faults.lost_watch);
        let slow = happens(self.faults.slow);
        let share: f64 = dice.random();
        let pieces = dice.random_range(0..5);
        let refusal = if too_many {
            Some(ApiError::too_many_requests(1))
        } else if failed {
            Some(ApiError::internal("an injected fault"))
        } else if conflict && replaces {
            Some(ApiError::stale(&Subject::default(), ""))
        } else {
            None
        };
        Fate {
            pause: slow.then(|| self.faults.slowness.mul_f64(share)),
            refusal,
            answer_is_lost: lost_answer && writes,
            watch_ends_after: lost_watch.then_some(pieces),
        }
    }
}

impl<S, B> Service<Request<B>> for FaultService<S>
where
    S: Service<Request<B>, Response = Response> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fate = self.fate(&request);
        let watches =
            request.uri().query().is_some_and(|query| query.contains("watch=")) && request.method() == Method::GET;
        let fresh = self.inner.clone();
        // The instance that was asked for readiness is the one to call.
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            if let Some(pause) = fate.pause {
                tokio::time::sleep(pause).await;
            }
            if let Some(refusal) = fate.refusal {
                return Ok(refusal.into_response());
            }
            let response = inner.call(request).await?;
            if fate.answer_is_lost {
                return Ok(ApiError::internal("the answer was lost on its way, an injected fault").into_response());
            }
            Ok(match fate.watch_ends_after {
                Some(pieces) if watches => response.map(|body| Body::from_stream(body.into_data_stream().take(pieces))),
                _ => response,
            })
        })
    }
}
