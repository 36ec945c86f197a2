//! Puts our CRDs in their place, whoever's stand there: the older schema of another chart would silently drop our fields.
//!
//! Server-side apply with force, so that labels and annotations of others survive. Only while OpenKruise itself serves these
//! kinds nothing is touched: its users would lose what works, and Larder would hand out nothing.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use larder_controller::crd_check::{conflicting_installs, shortcoming};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::errand::{ErrandError, ask};

/// Until an applied CRD is served.
const SERVED: Duration = Duration::from_mins(1);

/// `even_beside_openkruise`: a Larder that is installed already is not held back, its controller says what is in the way.
pub(crate) async fn run(client: Client, even_beside_openkruise: bool) -> Result<(), ErrandError> {
    let in_the_way = ask(
        "look whether OpenKruise serves these kinds",
        conflicting_installs(&client),
    )
    .await?;
    if !in_the_way.is_empty() {
        let sentence = in_the_way.join("; ");
        if !even_beside_openkruise {
            return Err(ErrandError::Refused(format!(
                "{sentence}. Nothing was changed; docs/migrate-from-openkruise.md says how to go on"
            )));
        }
        warn!(sentence, "Larder will hand out nothing until then");
    }
    let definitions = Api::<CustomResourceDefinition>::all(client);
    for crd in larder_api::crds() {
        apply(&definitions, crd).await?;
    }
    let deadline = Instant::now() + SERVED;
    for crd in larder_api::crds() {
        wait_until_served(&definitions, &crd, deadline).await?;
        info!(crd = crd.name_any(), "the CRD is served");
    }
    Ok(())
}

async fn apply(
    definitions: &Api<CustomResourceDefinition>,
    mut crd: CustomResourceDefinition,
) -> Result<(), ErrandError> {
    let name = crd.name_any();
    crd.spec.conversion = Some(CustomResourceConversion {
        strategy: "None".to_owned(),
        webhook: None,
    });
    // Of an object, server-side apply removes only what it put there itself: the address of another software's webhook
    // would stay, and with it the strategy `None` is refused.
    let before = ask(format!("read the CRD {name}"), definitions.get_opt(&name)).await?;
    let has_webhook = before
        .and_then(|before| before.spec.conversion)
        .is_some_and(|conversion| conversion.webhook.is_some());
    if has_webhook {
        let patch = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let request = definitions.patch(&name, &parameters, &patch);
        drop(ask(format!("take the conversion webhook out of the CRD {name}"), request).await?);
    }
    let parameters = PatchParams::apply("larder").force();
    drop(
        ask(
            format!("apply the CRD {name}"),
            definitions.patch(&name, &parameters, &Patch::Apply(&crd)),
        )
        .await?,
    );
    Ok(())
}

async fn wait_until_served(
    definitions: &Api<CustomResourceDefinition>,
    ours: &CustomResourceDefinition,
    deadline: Instant,
) -> Result<(), ErrandError> {
    let name = ours.name_any();
    loop {
        let theirs = ask(format!("read the CRD {name}"), definitions.get_opt(&name)).await?;
        let trouble = shortcoming(ours, theirs.as_ref());
        let Some(trouble) = trouble.or_else(|| not_established(theirs.as_ref(), &name)) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(ErrandError::NotReached(format!(
                "the CRD was applied, but {trouble}. If another chart keeps putting its own back, remove the CRD from there"
            )));
        }
        sleep(Duration::from_millis(500)).await;
    }
}

fn not_established(crd: Option<&CustomResourceDefinition>, name: &str) -> Option<String> {
    let conditions = crd.and_then(|crd| crd.status.as_ref()?.conditions.as_ref());
    let established = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    (!established).then(|| format!("{name} is not established yet"))
}
