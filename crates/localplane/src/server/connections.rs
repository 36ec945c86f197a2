//! Connections of clients: how many there may be, and how long they may take to say what they want.
//!
//! All clients are on loopback, where an address does not tell one user from another. So connections are told apart by
//! whether a valid token has arrived on them: those without one are few and short-lived, and a user without a token
//! cannot keep out a user who has it.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Router, extract::Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::util::MapRequest;

/// Answers under way may take this long after the server or an idle connection was asked to stop.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Pause after the system refused a connection, usually for want of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Bytes of an HTTP/1 request line and its headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// How many connections there may be, and how long they may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections on which no valid token has arrived yet. For one more, the oldest of them is closed.
    pub unauthenticated: usize,
    /// Connections on which a valid token has arrived. One more is closed.
    pub authenticated: usize,
    /// Time for the TLS handshake.
    pub handshake: Duration,
    /// Time from the connection to the first request with a valid token.
    pub authentication: Duration,
    /// Time without a request, or until a request has sent all of its headers.
    pub idle: Duration,
}

impl Default for Limits {
    /// Together they stay below 1,024 file descriptors, the usual limit of a process. `idle` is that of kube-apiserver.
    fn default() -> Self {
        Self {
            unauthenticated: 256,
            authenticated: 512,
            handshake: Duration::from_secs(5),
            authentication: Duration::from_secs(10),
            idle: Duration::from_secs(90),
        }
    }
}

/// Accepts connections until `stop`, then waits for those that are open.
pub(super) async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let open = OpenConnections::new(limits);
    let tasks = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let connection = open.add();
        tasks.spawn(run(stream, connection, acceptor.clone(), router.clone(), stop.clone()));
    }
    drop(listener);
    tasks.close();
    if timeout(GRACE_PERIOD, tasks.wait()).await.is_err() {
        tracing::warn!("some clients did not close their connections in time");
    }
}

async fn run(
    stream: TcpStream,
    connection: Connection,
    acceptor: TlsAcceptor,
    router: Router,
    stop: CancellationToken,
) {
    let limits = connection.open.limits;
    let mut in_flight = connection.in_flight.subscribe();
    let mut authenticated = connection.authenticated.subscribe();
    let closed = connection.closed.clone();
    let served = pin!(serve(
        stream,
        connection,
        acceptor,
        router,
        limits,
        &mut in_flight,
        &stop
    ));
    let unauthenticated = async {
        // Fails only with the connection itself.
        if timeout(limits.authentication, authenticated.wait_for(|yes| *yes))
            .await
            .is_ok()
        {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = served => {}
        () = closed.cancelled() => tracing::debug!("a connection was closed because there are too many"),
        () = unauthenticated => tracing::debug!("a connection was closed because no valid token arrived on it"),
    }
}

async fn serve(
    stream: TcpStream,
    connection: Connection,
    acceptor: TlsAcceptor,
    router: Router,
    limits: Limits,
    in_flight: &mut watch::Receiver<usize>,
    stop: &CancellationToken,
) {
    // Watch events are small and urgent.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a connection keeps gathering small packets"
        );
    }
    let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "a client broke off the TLS handshake"
            );
            return;
        }
        Err(_) => return,
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().max_buf_size(MAX_HEADER_BYTES);
    // One client may hold a watch for each of a thousand objects over one connection.
    builder.http2().max_concurrent_streams(10_000);
    let connection = Arc::new(connection);
    let router = MapRequest::new(router, move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&connection));
        request
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = is_idle(in_flight, limits.idle) => {
            serving.as_mut().graceful_shutdown();
            timeout(GRACE_PERIOD, serving).await.unwrap_or(Ok(()))
        }
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(
            error = error.as_ref() as &dyn std::error::Error,
            "a connection ended early"
        );
    }
}

/// Returns when there was no request for so long.
async fn is_idle(in_flight: &mut watch::Receiver<usize>, limit: Duration) {
    loop {
        if in_flight.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
        if timeout(limit, in_flight.changed()).await.is_err() {
            return;
        }
    }
}

/// All connections that are open.
#[derive(Debug)]
struct OpenConnections {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// Connections without a valid token, oldest first, and how to close them.
    unauthenticated: VecDeque<(u64, CancellationToken)>,
    authenticated: usize,
}

impl OpenConnections {
    fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection.
    fn add(self: &Arc<Self>) -> Connection {
        let mut state = self.state();
        if self.limits.unauthenticated <= state.unauthenticated.len()
            && let Some((_, oldest)) = state.unauthenticated.pop_front()
        {
            oldest.cancel();
        }
        let id = state.next_id;
        state.next_id += 1;
        let closed = CancellationToken::new();
        state.unauthenticated.push_back((id, closed.clone()));
        Connection {
            open: Arc::clone(self),
            id,
            closed,
            authenticated: watch::Sender::new(false),
            in_flight: watch::Sender::new(0),
        }
    }
}

/// One connection, as long as it is open.
#[derive(Debug)]
pub(super) struct Connection {
    open: Arc<OpenConnections>,
    id: u64,
    /// Cancelled when another connection takes its place.
    closed: CancellationToken,
    authenticated: watch::Sender<bool>,
    /// Requests whose answers have not ended.
    in_flight: watch::Sender<usize>,
}

impl Connection {
    /// A valid token has arrived. False if there are too many such connections.
    pub(super) fn authenticate(&self) -> bool {
        if *self.authenticated.borrow() {
            return true;
        }
        let mut state = self.open.state();
        if *self.authenticated.borrow() {
            return true;
        }
        if self.open.limits.authenticated <= state.authenticated {
            return false;
        }
        state.unauthenticated.retain(|(id, _)| *id != self.id);
        state.authenticated += 1;
        self.authenticated.send_replace(true);
        true
    }

    /// Counts a request until the returned value is dropped.
    pub(super) fn begin_request(self: &Arc<Self>) -> InFlight {
        self.in_flight.send_modify(|count| *count += 1);
        InFlight(Arc::clone(self))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.open.state();
        if *self.authenticated.borrow() {
            state.authenticated -= 1;
        } else {
            state.unauthenticated.retain(|(id, _)| *id != self.id);
        }
    }
}

/// A request whose answer has not ended.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(unauthenticated: usize, authenticated: usize) -> Limits {
        Limits {
            unauthenticated,
            authenticated,
            ..Limits::default()
        }
    }

    #[test]
    fn one_more_connection_without_a_token_closes_the_oldest() {
        let open = OpenConnections::new(limits(2, 2));
        let connections = [open.add(), open.add(), open.add()];
        let closed = connections
            .each_ref()
            .map(|connection| connection.closed.is_cancelled());
        assert_eq!(closed, [true, false, false]);
    }

    #[test]
    fn a_connection_with_a_token_is_not_closed_for_others() {
        let open = OpenConnections::new(limits(2, 2));
        let first = open.add();
        assert!(first.authenticate());
        let others: Vec<Connection> = (0..5).map(|_| open.add()).collect();
        assert!(!first.closed.is_cancelled());
        assert!(others[2].closed.is_cancelled() && !others[3].closed.is_cancelled());
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_ends() {
        let open = OpenConnections::new(limits(2, 1));
        let first = open.add();
        assert!(first.authenticate() && first.authenticate());
        let second = open.add();
        assert!(!second.authenticate());
        drop(first);
        assert!(second.authenticate());
        drop(second);
        let state = open.state();
        assert_eq!((state.authenticated, state.unauthenticated.len()), (0, 0));
    }
}
