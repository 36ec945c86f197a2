//! The network of an edge site: a namespace of its own with two lines, one to the cloud and one to the registry of its
//! region. A line is a pair of virtual interfaces, and is cut as a cable is: nothing answers, nothing refuses.
//!
//! Namespace and interfaces are removed by their names, also when the test panics or is killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use larder_testkit::{Program, Throttle};

/// Waits for the end of the pipe, then removes everything.
const REMOVE: &str = r#"read -r _; ip link del "$2"; ip link del "$3"; ip netns del "$1""#;

/// One site. Its programs start inside with [`EdgeSite::inside`].
pub struct EdgeSite {
    name: String,
    /// To the API server.
    pub cloud: Line,
    /// To the registry.
    pub region: Line,
    remover: Child,
}

/// A line between this machine and the site.
pub struct Line {
    interface: String,
    address: Ipv4Addr,
}

impl EdgeSite {
    /// Makes the namespace and both lines. Needs root.
    pub fn create() -> Self {
        // Names of interfaces have at most 15 letters.
        let id = format!("{:08x}", rand::random::<u32>());
        let name = format!("larder-{id}");
        let (cloud, region) = (Line::new(&format!("lc{id}")), Line::new(&format!("lr{id}")));
        // Before there is anything to remove: a start that fails half way leaves nothing either.
        let remover = Command::new("/bin/sh")
            .args(["-c", REMOVE, "remove", &name, &cloud.interface, &region.interface])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let site = Self {
            name,
            cloud,
            region,
            remover,
        };
        ip(&["netns", "add", &site.name]);
        ip(&["-n", &site.name, "link", "set", "lo", "up"]);
        site.cloud.lay(&site.name, "cloud");
        site.region.lay(&site.name, "region");
        site
    }

    /// The name of its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same program, on the site.
    pub fn inside(&self, program: Program) -> Program {
        let mut args = vec![format!("--net=/run/netns/{}", self.name), "--".to_owned()];
        args.push(program.path.display().to_string());
        args.extend(program.args);
        Program {
            path: "/usr/bin/nsenter".into(),
            args,
            ..program
        }
    }
}

impl Drop for EdgeSite {
    fn drop(&mut self) {
        // `wait` closes the pipe first, which is the sign to remove.
        self.remover.wait().ok();
    }
}

impl Line {
    fn new(interface: &str) -> Self {
        // Networks of four addresses in the range that is set aside for tests of network devices.
        let network = 0xc612_0000 + 4 * rand::random_range(0..0x8000_u32);
        Self {
            interface: interface.to_owned(),
            address: Ipv4Addr::from_bits(network + 1),
        }
    }

    fn lay(&self, namespace: &str, inside: &str) {
        let here = format!("{}/30", self.address);
        let there = format!("{}/30", self.there(0).ip());
        let interface = self.interface.as_str();
        ip(&[
            "link", "add", interface, "type", "veth", "peer", "name", inside, "netns", namespace,
        ]);
        ip(&["addr", "add", &here, "dev", interface]);
        ip(&["-n", namespace, "addr", "add", &there, "dev", inside]);
        ip(&["-n", namespace, "link", "set", inside, "up"]);
        self.join();
    }

    /// A port at the other end, on the site.
    pub fn there(&self, port: u16) -> SocketAddr {
        (Ipv4Addr::from_bits(self.address.to_bits() + 1), port).into()
    }

    /// Cuts it.
    pub fn cut(&self) {
        ip(&["link", "set", &self.interface, "down"]);
    }

    /// Joins it again.
    pub fn join(&self) {
        ip(&["link", "set", &self.interface, "up"]);
    }

    /// Lets a server of this machine be reached over the line, at this port.
    pub async fn serve(&self, port: u16, server: SocketAddr) -> Throttle {
        Throttle::start_at((self.address, port).into(), server).await.unwrap()
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("/bin/ip").args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", arguments.join(" "));
}
