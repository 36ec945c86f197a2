//! promtool, which reads alert rules as Prometheus does and tries them on made-up series.

use std::ffi::OsStr;
use std::process::Output;

use tokio::process::Command;

use crate::environment::{PROMETHEUS, cached};
use crate::{Result, command};

/// Runs promtool with these arguments and gives back its outcome, good or bad.
pub async fn promtool<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Result<Output> {
    let mut promtool = Command::new(cached(PROMETHEUS, "promtool")?);
    promtool.args(args);
    command::outcome("running promtool", promtool).await
}
