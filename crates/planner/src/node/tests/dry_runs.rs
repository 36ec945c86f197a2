//! Questions that pull nothing.

use super::*;

#[test]
fn a_dry_run_pulls_nothing_and_claims_no_success() {
    let mut dry = tag("1");
    dry.dry_run = true;
    let mut scheduler = scheduler(1, &[tag("busy"), dry]);
    let steps = scheduler.decide(at(0), &wall());
    assert!(matches!(&steps[0], NodeStep::DryRun { run: 1, .. }), "{steps:?}");
    let verdict = Ok("fits".to_owned());
    scheduler.ended(
        1,
        Ended::Report {
            verdict,
            bytes: Some((10, 30)),
            digest: None,
        },
        at(0),
        &wall(),
    );
    let status = shown(&scheduler, "1");
    assert_eq!((status.phase(), status.last_succeeded), (Phase::Succeeded, None));
    assert_eq!(
        (status.bytes_done, status.bytes_total, status.attempts),
        (Some(10), Some(30), Some(0))
    );
    assert_eq!(status.message.as_deref(), Some("fits"));
}

#[test]
fn a_dry_run_that_lacks_credentials_waits_for_them() {
    let mut dry = tag("1");
    dry.dry_run = true;
    let mut scheduler = scheduler(1, &[dry.clone()]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::SecretMissing), at(0), &wall());
    let status = shown(&scheduler, "1");
    assert_eq!(
        (status.phase(), status.reason()),
        (Phase::Waiting, Some(Reason::SecretMissing))
    );
    dry.credentials = vec!["a".into()];
    scheduler.take_orders(entries(&spec(&[dry])), None, at(0));
    let steps = scheduler.decide(at(0), &wall());
    assert!(matches!(&steps[..], [NodeStep::DryRun { .. }]), "{steps:?}");
}
