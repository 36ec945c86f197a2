//! A real image registry (distribution 2.8, Debian's `docker-registry`) on loopback, open or with a password.

mod access_log;
mod push;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;

pub use self::access_log::Served;
pub use self::push::Pushed;
use crate::environment::{REGISTRY_DEBIAN, cached, installed};
use crate::{Lifetime, Port, Process, Program, Result, Scratch, command};

const READY: Duration = Duration::from_secs(30);

/// Who may use a registry.
#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    /// Everybody.
    Open,
    /// One user, by HTTP basic authentication.
    Basic {
        /// The user's name.
        user: String,
        /// The user's password.
        password: String,
    },
}

impl Auth {
    /// One user with this password.
    pub fn basic(user: &str, password: &str) -> Self {
        Self::Basic {
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }
}

/// A running registry; it ends, and its content goes, when it is dropped.
pub struct Registry {
    auth: Auth,
    http: reqwest::Client,
    process: Process,
    port: Port,
    _scratch: Scratch,
}

impl Registry {
    /// Starts an empty registry and waits until it answers.
    pub async fn start(auth: Auth) -> Result<Self> {
        let scratch = Scratch::create("registry")?;
        let port = Port::reserve()?;
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {
                "filesystem": {"rootdirectory": scratch.join("storage")},
                "delete": {"enabled": true},
            },
            "http": {"addr": port.address()},
        });
        if let Auth::Basic { user, password } = &auth {
            let file = scratch.write("htpasswd", password_file(user, password).await?)?;
            config["auth"] = json!({"htpasswd": {"realm": "larder", "path": file}});
        }
        // JSON is YAML.
        let config = scratch.write("config.yml", config.to_string())?;
        let program = Program {
            name: "docker-registry",
            path: cached(REGISTRY_DEBIAN, "docker-registry")?,
            args: vec!["serve".into(), config.display().to_string()],
            env: vec![],
            log: scratch.join("docker-registry.log"),
            lifetime: Lifetime::Handle,
        };
        let mut registry = Self {
            auth,
            http: reqwest::Client::new(),
            process: Process::start(program)?,
            port,
            _scratch: scratch,
        };
        registry.wait_ready().await?;
        Ok(registry)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The host part of image references, for example `127.0.0.1:20123`.
    pub fn host(&self) -> String {
        self.port.address().to_string()
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.pid()
    }

    /// Kills it: connections break, new ones are refused.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    /// Starts it again at the same address with the same content.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.restart()?;
        self.wait_ready().await
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets it go on after [`freeze`](Self::freeze).
    pub fn thaw(&self) -> Result<()> {
        self.process.thaw()
    }

    /// The requests it has answered so far, oldest first, those of this crate's own pushes among them.
    pub fn served(&self) -> Vec<Served> {
        self.process.log().lines().filter_map(Served::read).collect()
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let ping = self.request(reqwest::Method::GET, "");
        let ready = async || {
            let ping = ping.try_clone().ok_or("the request cannot be repeated")?;
            let answer = ping.send().await.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                Ok(())
            } else {
                Err(format!("/v2/ answered {}", answer.status()))
            }
        };
        self.process.wait_ready(READY, ready).await
    }

    /// A request below `/v2/`, with the password if there is one.
    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.authorized(self.http.request(method, format!("http://{}/v2/{path}", self.host())))
    }

    fn authorized(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.auth {
            Auth::Open => request,
            Auth::Basic { user, password } => request.basic_auth(user, Some(password)),
        }
    }
}

/// The registry knows bcrypt only; the lowest cost, because it is paid with every request.
async fn password_file(user: &str, password: &str) -> Result<Vec<u8>> {
    let mut htpasswd = Command::new(installed("htpasswd")?);
    htpasswd.args(["-n", "-i", "-B", "-C", "4", user]);
    command::output_with_input("making a password file with htpasswd", htpasswd, password).await
}
