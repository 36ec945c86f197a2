//! HTTP servers that stand in for registries, mirrors and token services, and write down what they were sent.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// One request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    /// Method and path.
    pub(crate) line: String,
    /// The `Authorization` header and the body.
    pub(crate) secrets: String,
    /// The `Range` header: the first byte and the last, where it names one.
    pub(crate) range: Option<(usize, Option<usize>)>,
}

/// A header after whose answer the body never ends.
pub(crate) const ENDLESS: (&str, &str) = ("X-Endless", "yes");

type Answer = dyn Fn(&Sent) -> String + Send + Sync;

/// A server; it ends when it is dropped.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    sent: Arc<Mutex<Vec<Sent>>>,
    _tasks: JoinSet<()>,
}

impl Stub {
    /// Answers at an address of the loopback network, by this rule. An empty answer is none.
    pub(crate) async fn start(ip: &str, answer: impl Fn(&Sent) -> String + Send + Sync + 'static) -> Self {
        Self::start_knowing_itself(ip, |_| answer).await
    }

    /// The same, with a rule that needs to know the server's own address.
    pub(crate) async fn start_knowing_itself<A>(ip: &str, rule: impl FnOnce(SocketAddr) -> A) -> Self
    where
        A: Fn(&Sent) -> String + Send + Sync + 'static,
    {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer: Arc<Answer> = Arc::new(rule(address));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let log = Arc::clone(&sent);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&answer), Arc::clone(&log)));
            }
        });
        Self {
            address,
            sent,
            _tasks: tasks,
        }
    }

    /// What came so far.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Answer>, log: Arc<Mutex<Vec<Sent>>>) {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    while let Some(sent) = request(&mut read).await {
        let answer = answer(&sent);
        log.lock().unwrap().push(sent);
        if answer.is_empty() {
            // A server that hangs; the connection ends with the test.
            std::future::pending::<()>().await;
        }
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        let (name, value) = ENDLESS;
        while answer.contains(&format!("{name}: {value}\r\n")) {
            if write.write_all(&[b'x'; 4096]).await.is_err() {
                return;
            }
        }
    }
}

/// The next request of a connection, or `None` at its end.
async fn request(read: &mut BufReader<tokio::net::tcp::ReadHalf<'_>>) -> Option<Sent> {
    let mut sent = Sent::default();
    let mut length = 0;
    loop {
        let mut line = Vec::new();
        if read.read_until(b'\n', &mut line).await.ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if sent.line.is_empty() {
            sent.line = line;
            continue;
        }
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => sent.secrets.push_str(value),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            Some((name, value)) if name.eq_ignore_ascii_case("range") => {
                let range = value.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
                sent.range = range.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok())));
            }
            _ => {}
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    read.read_exact(&mut body).await.ok()?;
    sent.secrets.push_str(&String::from_utf8_lossy(&body));
    Some(sent)
}

/// An answer with these headers and this body.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let headers = lines.concat();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}
