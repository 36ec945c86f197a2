//! Custom resource definitions: applied, accepted, and really served.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};

use crate::wait::wait_for;
use crate::{Error, Result};

const SERVED: Duration = Duration::from_secs(30);

/// Applies the definitions and waits until every version is served.
pub(super) async fn apply(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply("larder-testkit").force();
    for crd in crds {
        let name = crd.name_any();
        api.patch(&name, &params, &Patch::Apply(crd))
            .await
            .map_err(Error::kube(format!("applying CRD {name}")))?;
    }
    wait_until_served(client, crds).await
}

/// Waits until the definitions are established and their resources stand in discovery.
pub(super) async fn wait_until_served(client: &Client, crds: &[CustomResourceDefinition]) -> Result<()> {
    for crd in crds {
        wait_for(SERVED, format!("CRD {} to be served", crd.name_any()), async || {
            served(client, crd).await
        })
        .await?;
    }
    Ok(())
}

async fn served(client: &Client, crd: &CustomResourceDefinition) -> Result<(), String> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let found = api.get(&crd.name_any()).await.map_err(|error| error.to_string())?;
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    if !conditions
        .iter()
        .any(|condition| condition.type_ == "Established" && condition.status == "True")
    {
        return Err(format!("not established: {conditions:?}"));
    }
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let group_version = format!("{}/{}", crd.spec.group, version.name);
        let resources = client
            .list_api_group_resources(&group_version)
            .await
            .map_err(|error| error.to_string())?;
        if !resources
            .resources
            .iter()
            .any(|resource| resource.name == crd.spec.names.plural)
        {
            return Err(format!("{group_version} does not list it yet"));
        }
    }
    Ok(())
}
