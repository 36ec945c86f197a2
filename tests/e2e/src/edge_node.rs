//! Nodes on the edge: like any others, but labelled as KubeEdge labels them, and with other ways to the API: over a line
//! that can be cut, or by MetaServer.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use larder_testkit::{Identity, MetaServer, Throttle};
use serde_json::{Value, json};

use crate::edge_site::EdgeSite;
use crate::node::{Health, Way, create};
use crate::{Cluster, Setup, TestNode};

/// The label by which KubeEdge knows its nodes; it must be there, and empty.
pub const EDGE: &str = "node-role.kubernetes.io/edge";

/// The label of a node group.
pub const GROUP: &str = "apps.kubeedge.io/belonging-to";

/// Where the API server is reached from a site.
const API_PORT: u16 = 6443;

/// Where the agent on a site answers questions about itself.
const HEALTH_PORT: u16 = 8081;

impl Cluster {
    /// A cluster of edge nodes `edge-0`, `edge-1`, …, one for each set of further labels.
    pub async fn start_edge(labels: &[Value]) -> Self {
        let mut cluster = Self::start(0).await;
        for (number, labels) in labels.iter().enumerate() {
            let name = format!("edge-{number}");
            cluster.create_edge_node(&name, labels).await;
            cluster.join(&name).await;
        }
        cluster.wait_until_ready().await;
        cluster
    }

    /// The Node object of an edge node, Ready, with further labels. Nothing runs on it yet.
    pub async fn create_edge_node(&self, name: &str, labels: &Value) {
        let mut all = json!({ EDGE: "", "node-role.kubernetes.io/agent": "" });
        all.as_object_mut()
            .unwrap()
            .extend(labels.as_object().cloned().unwrap_or_default());
        create(self.plane.access(), name, &all).await;
    }

    /// Sets the Ready condition of a Node, as its lease would.
    pub async fn set_ready(&self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        let patch = json!({ "status": { "conditions": [{
            "type": "Ready", "status": status, "reason": "NodeStatus", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] } });
        Api::<Node>::all(self.client())
            .patch_status(node, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .unwrap();
    }

    /// Runtime and agent of an edge node on a site of its own; the Node must be there. Gives back what carries its
    /// requests, to count them.
    pub async fn join_at(&mut self, name: &str, site: &EdgeSite) -> Throttle {
        let access = self.plane.access();
        let line = site.cloud.serve(API_PORT, access.address()).await;
        let token = access
            .service_account_token("larder-system", "larder-agent", Some(name))
            .await
            .unwrap();
        let kubeconfig = access
            .through(line.address())
            .unwrap()
            .write_kubeconfig(self.scratch.path(), name, &token)
            .unwrap();
        // The server's certificate names loopback, not the line.
        let mut config: Value = serde_json::from_slice(&std::fs::read(&kubeconfig).unwrap()).unwrap();
        config["clusters"][0]["cluster"]["tls-server-name"] = json!("localhost");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let way = Way {
            flag: format!("--kubeconfig={}", kubeconfig.display()),
            kubeconfig,
            health: Health::at(site.region.there(HEALTH_PORT)),
            change: &|program| site.inside(program),
        };
        let node = TestNode::start_on(way, &self.scratch, name, &Setup::default()).await;
        self.nodes.push(node);
        line
    }

    /// Runtime and agent of an edge node that knows its MetaServer alone; the Node must be there.
    pub async fn join_behind_metaserver(&mut self, name: &str, identity: Identity) -> MetaServer {
        let meta_server = MetaServer::start(self.plane.access(), name, identity).await.unwrap();
        let way = Way {
            flag: format!("--server={}", meta_server.url()),
            kubeconfig: self.plane.kubeconfig().to_owned(),
            health: Health::on_loopback(),
            change: &|program| program,
        };
        let node = TestNode::start_on(way, &self.scratch, name, &Setup::default()).await;
        self.nodes.push(node);
        meta_server
    }
}
