//! `--feature-gates Name=true,Name=false`, as other controllers have it.
//!
//! Names that are not ours are reported, not refused: charts carry the gates of the software that Larder stands in for.

use thiserror::Error;

const IMAGE_PULL_JOBS: &str = "ImagePullJobGate";

/// The message of a job while jobs are not served.
const GATE_OFF: &str = "feature gate ImagePullJobGate is off";

/// What is turned on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `ImagePullJobGate`: serve jobs. It is what this software is for, so it is on unless turned off.
    pub image_pull_jobs: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self { image_pull_jobs: true }
    }
}

/// A gate that cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` in --feature-gates is not of the form Name=true or Name=false")]
pub struct UnreadableGate(String);

impl FeatureGates {
    /// Why no job is served, if none is.
    pub fn not_served(self) -> Option<&'static str> {
        (!self.image_pull_jobs).then_some(GATE_OFF)
    }

    /// Reads the flag's values, each of which may hold several gates; the last word on a gate counts. Also gives back the
    /// names that mean nothing here.
    pub fn read(values: &[String]) -> Result<(Self, Vec<String>), UnreadableGate> {
        let mut gates = Self::default();
        let mut unknown = Vec::new();
        for gate in values
            .iter()
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|gate| !gate.is_empty())
        {
            let unreadable = || UnreadableGate(gate.to_owned());
            let (name, on) = gate.split_once('=').ok_or_else(unreadable)?;
            let on: bool = on.trim().to_ascii_lowercase().parse().map_err(|_| unreadable())?;
            match name.trim() {
                IMAGE_PULL_JOBS => gates.image_pull_jobs = on,
                other => unknown.push(other.to_owned()),
            }
        }
        Ok((gates, unknown))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_given(&[], true, &[])]
    #[case::empty(&[""], true, &[])]
    #[case::on(&["ImagePullJobGate=true"], true, &[])]
    #[case::off(&["ImagePullJobGate=false"], false, &[])]
    #[case::written_as_go_does(&["ImagePullJobGate=False"], false, &[])]
    #[case::the_last_word_counts(&["ImagePullJobGate=false", "ImagePullJobGate=true"], true, &[])]
    #[case::gates_of_others(&["KruiseDaemon=true, ImagePullJobGate=false,Other=false"], false, &["KruiseDaemon", "Other"])]
    fn reads(#[case] values: &[&str], #[case] jobs: bool, #[case] unknown: &[&str]) {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        let (gates, others) = FeatureGates::read(&values).unwrap();
        assert_eq!(
            (gates.image_pull_jobs, others),
            (jobs, unknown.iter().map(|&name| name.to_owned()).collect())
        );
    }

    #[rstest]
    #[case::no_value("ImagePullJobGate")]
    #[case::no_bool("ImagePullJobGate=yes")]
    fn refuses(#[case] gate: &str) {
        let error = FeatureGates::read(&[gate.to_owned()]).unwrap_err();
        assert_eq!(error, UnreadableGate(gate.to_owned()));
    }
}
