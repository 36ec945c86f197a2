//! Whether the API server enforces the node policy, found out by trying: the agents' account, without a node, offers a
//! NodeImage status. Any node's agent could do the same with its own token, so the policy must refuse it.
//!
//! The write is a dry run of a patch that changes nothing. The account is impersonated, because the caller's own account may
//! be one that the policy lets pass, as it does for the controller and for administrators.

use http::HeaderValue;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use larder_access::POLICY;
use larder_api::NodeImage;
pub use larder_planner::node_policy::Probe;
use serde_json::json;

use crate::error_chain::chain;

/// Tries the policy on the NodeImage of a node, and says what the API server answered.
pub async fn try_policy(client: &Client, node: &str, agent: &str) -> (Probe, String) {
    let parameters = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({ "status": {} }));
    let request = Request::new(NodeImage::url_path(&(), None)).patch_subresource("status", node, &parameters, &patch);
    let (Ok(mut request), Ok(agent)) = (request, HeaderValue::from_str(agent)) else {
        return (Probe::Inconclusive, format!("{agent:?} is no name of an account"));
    };
    request.headers_mut().insert("impersonate-user", agent);
    match client.request::<NodeImage>(request).await {
        Ok(_) => (Probe::Accepted, "the write was accepted".to_owned()),
        Err(kube::Error::Api(status)) => (judge(status.code, &status.message), status.message.clone()),
        Err(error) => (Probe::NoAnswer, chain(&error)),
    }
}

/// RBAC, webhooks and policies all answer 403; nothing but the message says which of them it was.
fn judge(code: u16, message: &str) -> Probe {
    let by_policy = message.contains(&format!("ValidatingAdmissionPolicy '{POLICY}'"));
    match code {
        403 | 422 if by_policy => Probe::Refused,
        // The NodeImage is gone, or the API server is busy, starting or broken.
        404 | 429 | 500.. => Probe::NoAnswer,
        _ => Probe::Inconclusive,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::policy(
        403,
        "nodeimages.apps.kruise.io \"a\" is forbidden: ValidatingAdmissionPolicy 'larder-agent-own-node' with binding \
         'larder-agent-own-node' denied request: the token of x names no node",
        Probe::Refused
    )]
    #[case::rbac(
        403,
        "nodeimages.apps.kruise.io \"larder-agent-own-node\" is forbidden: User \"system:serviceaccount:larder-system:larder-agent\" \
         cannot patch resource \"nodeimages/status\"",
        Probe::Inconclusive
    )]
    #[case::may_not_impersonate(
        403,
        "serviceaccounts \"larder-agent\" is forbidden: User \"x\" cannot impersonate resource \"serviceaccounts\"",
        Probe::Inconclusive
    )]
    #[case::another_policy(
        403,
        "nodeimages.apps.kruise.io \"a\" is forbidden: ValidatingAdmissionPolicy 'mine' with binding 'mine' denied request: no",
        Probe::Inconclusive
    )]
    #[case::gone(404, "nodeimages.apps.kruise.io \"a\" not found", Probe::NoAnswer)]
    #[case::busy(429, "too many requests", Probe::NoAnswer)]
    #[case::broken(500, "etcdserver: no leader", Probe::NoAnswer)]
    fn an_answer_shows(#[case] code: u16, #[case] message: &str, #[case] probe: Probe) {
        assert_eq!(judge(code, message), probe);
    }
}
