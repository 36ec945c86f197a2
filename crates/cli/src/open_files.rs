//! How many files this process may have open, held against what so many nodes need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;

/// Files that a node has open: the lock of its folder, and what it writes at the moment.
const PER_NODE: u64 = 2;

/// Files of everything else, and of pulls.
const BESIDES: u64 = 256;

/// Raises the limit as far as the system allows; an error if that is still too little.
pub(crate) fn make_room_for(nodes: usize) -> Result<(), Failure> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    );
    let allowed = if raised.is_ok() { maximum } else { current };
    match refusal(nodes, allowed) {
        Some(why) => Err(Failure::wrong(why)),
        None => Ok(()),
    }
}

/// Why so many nodes cannot be had; None: no limit.
fn refusal(nodes: usize, allowed: Option<u64>) -> Option<String> {
    let allowed = allowed?;
    let needed = u64::try_from(nodes)
        .unwrap_or(u64::MAX)
        .saturating_mul(PER_NODE)
        .saturating_add(BESIDES);
    let most = allowed.saturating_sub(BESIDES) / PER_NODE;
    (allowed < needed).then(|| {
        format!(
            "{nodes} nodes need about {needed} open files, and this process may have {allowed}; \
             give --nodes {most} at most, or raise the limit with ulimit -n {needed}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::few(3, Some(1_024), None)]
    #[case::as_many_as_there_may_be(384, Some(1_024), None)]
    #[case::one_more(385, Some(1_024), Some("--nodes 384 at most"))]
    #[case::far_too_many(100_000, Some(20_000), Some("--nodes 9872 at most"))]
    #[case::more_than_can_be_counted(usize::MAX, Some(20_000), Some("this process may have 20000"))]
    #[case::no_limit(100_000, None, None)]
    fn room(#[case] nodes: usize, #[case] allowed: Option<u64>, #[case] says: Option<&str>) {
        let said = refusal(nodes, allowed);
        assert_eq!(said.is_some(), says.is_some(), "{said:?}");
        if let (Some(said), Some(says)) = (said, says) {
            assert!(said.contains(says), "{said}");
        }
    }
}
