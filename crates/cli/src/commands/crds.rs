//! `larder crds`: the CRDs as YAML, for `kubectl apply --server-side -f -`.

use crate::failure::{Failure, chain};
use crate::output;
use crate::printable::Printable;

pub(crate) fn run() -> Result<(), Failure> {
    let mut text = String::new();
    for crd in larder_api::crds() {
        // By way of a JSON value, as in deploy/crds: keys come out sorted.
        let json = serde_json::to_value(&crd).map_err(|error| Failure::wrong(error.to_string()))?;
        let yaml = serde_saphyr::to_string(&json).map_err(|error| Failure::wrong(chain(&error)))?;
        text.push_str("---\n");
        text.push_str(&yaml);
    }
    output::print(&Printable::document(&text));
    Ok(())
}
