//! A bad line: a TCP proxy in front of a server that can be slow, stall, break off or refuse.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Error, Port, Result};

/// How much is passed on at once: small enough for an even flow at 100 KB/s.
const CHUNK: usize = 16 * 1024;

/// Pause before the port is tried again that a refusal gave up.
const RETRY: Duration = Duration::from_millis(20);

/// How the line behaves. Changes take effect at once, on open connections too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// Passes everything on as it comes.
    #[default]
    Open,
    /// Passes this many bytes per second towards the client, on each connection.
    Slow(NonZeroU64),
    /// The same over a distance: each connection and each request takes this time longer to be answered.
    Far(Duration, NonZeroU64),
    /// Keeps connections open and passes nothing towards the client.
    Stalled,
    /// Breaks each connection off after this many bytes towards the client.
    CutAfter(u64),
    /// Breaks all connections off and refuses new ones.
    Refused,
}

impl Link {
    /// A slow line; at least one byte per second.
    pub fn bytes_per_second(rate: u64) -> Self {
        Self::Slow(NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN))
    }

    /// A slow line over a distance.
    pub fn far(round_trip: Duration, rate: u64) -> Self {
        Self::Far(round_trip, NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN))
    }

    /// Bytes per second towards the client, where they are limited.
    fn rate(self) -> Option<NonZeroU64> {
        match self {
            Self::Slow(rate) | Self::Far(_, rate) => Some(rate),
            Self::Open | Self::Stalled | Self::CutAfter(_) | Self::Refused => None,
        }
    }

    fn round_trip(self) -> Duration {
        match self {
            Self::Far(round_trip, _) => round_trip,
            _ => Duration::ZERO,
        }
    }
}

/// A proxy in front of a server.
#[derive(Debug)]
pub struct Throttle {
    address: SocketAddr,
    /// Stays reserved as long as the line is there.
    _port: Option<Port>,
    link: watch::Sender<Link>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicU64,
    connections: AtomicU64,
}

impl Throttle {
    /// Starts an open line to this server. It lives in the async runtime of the caller.
    pub async fn start(server: SocketAddr) -> Result<Self> {
        let port = Port::reserve()?;
        Self::open(port.address(), Some(port), server).await
    }

    /// The same at an address of the caller's own, for example that of a virtual interface.
    pub async fn start_at(address: SocketAddr, server: SocketAddr) -> Result<Self> {
        Self::open(address, None, server).await
    }

    async fn open(address: SocketAddr, port: Option<Port>, server: SocketAddr) -> Result<Self> {
        let listener = listen(address)
            .await
            .map_err(Error::io(format!("opening {address} for a throttled line")))?;
        let (link, changes) = watch::channel(Link::default());
        let counters = Arc::<Counters>::default();
        let task = tokio::spawn(accept(address, listener, server, changes, Arc::clone(&counters)));
        Ok(Self {
            address,
            _port: port,
            link,
            counters,
            task,
        })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The host part of image references through this line.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Changes how the line behaves.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Bytes passed towards clients since the start.
    pub fn bytes(&self) -> u64 {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    /// Connections accepted since the start.
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The port is taken again after a refusal, when connections of before may linger on it; tokio sets SO_REUSEADDR.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

async fn accept(
    address: SocketAddr,
    listener: TcpListener,
    server: SocketAddr,
    mut changes: watch::Receiver<Link>,
    counters: Arc<Counters>,
) {
    let mut listener = Some(listener);
    // Ends its connections when it is dropped.
    let mut connections = JoinSet::new();
    loop {
        let refused = *changes.borrow_and_update() == Link::Refused;
        if refused {
            listener = None;
            connections.abort_all();
        } else if listener.is_none() {
            listener = listen(address).await.ok();
            if listener.is_none() {
                sleep(RETRY).await;
                continue;
            }
        }
        while connections.try_join_next().is_some() {}
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            news = changes.changed() => if news.is_err() { return },
            Ok((client, _)) = accepted => {
                counters.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(pass(client, server, changes.clone(), Arc::clone(&counters)));
            }
        }
    }
}

async fn pass(client: TcpStream, server: SocketAddr, link: watch::Receiver<Link>, counters: Arc<Counters>) {
    let distance = || link.borrow().round_trip();
    // The handshake, which the client's kernel has made with us and not with the server.
    sleep(distance()).await;
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let up = pass_up(client_reads, server_writes, distance);
    tokio::select! {
        // The end of the requests is not the end of the answers.
        () = async { up.await; std::future::pending().await } => {}
        () = pass_down(server_reads, client_writes, link.clone(), &counters) => {}
    }
}

/// Passes requests on. They are short, so that delaying each part delays each request once.
async fn pass_up(
    mut client: impl tokio::io::AsyncRead + Unpin,
    mut server: impl tokio::io::AsyncWrite + Unpin,
    distance: impl Fn() -> Duration,
) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(read @ 1..) = client.read(&mut buffer).await {
        sleep(distance()).await;
        if server.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    server.shutdown().await.ok();
}

async fn pass_down(
    mut server: impl tokio::io::AsyncRead + Unpin,
    mut client: impl tokio::io::AsyncWrite + Unpin,
    mut link: watch::Receiver<Link>,
    counters: &Counters,
) {
    let mut buffer = vec![0; CHUNK];
    let mut passed = 0_u64;
    loop {
        let Ok(read @ 1..) = server.read(&mut buffer).await else {
            return;
        };
        let started = Instant::now();
        // The state is looked at after reading: bytes that arrive during a stall wait here for its end.
        if link.wait_for(|now| *now != Link::Stalled).await.is_err() {
            return;
        }
        let state = *link.borrow_and_update();
        let allowed = match state {
            Link::CutAfter(limit) => usize::try_from(limit.saturating_sub(passed))
                .unwrap_or(usize::MAX)
                .min(read),
            _ => read,
        };
        if client.write_all(&buffer[..allowed]).await.is_err() || client.flush().await.is_err() {
            return;
        }
        passed += allowed as u64;
        counters.bytes.fetch_add(allowed as u64, Ordering::Relaxed);
        if allowed < read {
            return;
        }
        if let Some(rate) = state.rate() {
            let until = started + Duration::from_micros(read as u64 * 1_000_000 / rate);
            tokio::select! {
                () = sleep_until(until) => {}
                // A new speed counts from now on; without a sender there will be none.
                _ = link.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 200_000;

    /// Sends `PAGE` bytes to whoever connects.
    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move { stream.write_all(&vec![1; PAGE]).await });
            }
        });
        address
    }

    async fn fetch(line: &Throttle) -> std::io::Result<usize> {
        let mut page = Vec::new();
        TcpStream::connect(line.address()).await?.read_to_end(&mut page).await
    }

    #[tokio::test]
    async fn an_open_line_passes_everything() {
        let line = Throttle::start(server().await).await.unwrap();
        assert_eq!(fetch(&line).await.unwrap(), PAGE);
        assert_eq!((line.bytes(), line.connections()), (PAGE as u64, 1));
    }

    #[tokio::test]
    async fn a_slow_line_takes_its_time() {
        let line = Throttle::start(server().await).await.unwrap();
        line.set(Link::bytes_per_second(PAGE as u64 * 4));
        let start = Instant::now();
        assert_eq!(fetch(&line).await.unwrap(), PAGE);
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_far_line_answers_late_and_takes_its_time() {
        let line = Throttle::start(server().await).await.unwrap();
        line.set(Link::far(Duration::from_millis(100), PAGE as u64 * 4));
        let start = Instant::now();
        assert_eq!(fetch(&line).await.unwrap(), PAGE);
        assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_cut_line_gives_the_first_part() {
        let line = Throttle::start(server().await).await.unwrap();
        line.set(Link::CutAfter(50_000));
        assert_eq!(fetch(&line).await.unwrap(), 50_000);
    }

    #[tokio::test]
    async fn a_stalled_line_goes_on_when_it_opens() {
        let line = Throttle::start(server().await).await.unwrap();
        line.set(Link::Stalled);
        let mut stream = TcpStream::connect(line.address()).await.unwrap();
        let mut page = Vec::new();
        let early = tokio::time::timeout(Duration::from_millis(100), stream.read_to_end(&mut page)).await;
        assert!(early.is_err() && page.is_empty());
        line.set(Link::Open);
        stream.read_to_end(&mut page).await.unwrap();
        assert_eq!(page.len(), PAGE);
    }

    #[tokio::test]
    async fn a_refused_line_comes_back_at_the_same_address() {
        let line = Throttle::start(server().await).await.unwrap();
        line.set(Link::Refused);
        crate::wait_until(Duration::from_secs(5), "a refusal", async || {
            fetch(&line).await.is_err()
        })
        .await
        .unwrap();
        line.set(Link::Open);
        crate::wait_until(Duration::from_secs(5), "an answer", async || {
            fetch(&line).await.is_ok_and(|n| n == PAGE)
        })
        .await
        .unwrap();
    }
}
