//! What is told of the entries, and when it is worth a write.

use larder_api::contract::MESSAGE_BYTES_MAX;
use larder_api::node_image::NodeImageStatus;

use super::*;

#[test]
fn a_short_pull_is_not_worth_a_write_before_its_end() {
    let mut scheduler = scheduler(1, &[tag("1"), tag("2")]);
    scheduler.decide(at(5), &wall());
    let shown = scheduler.status();
    assert_eq!(shown.due[&key("1")], at(6), "pulling: a second later");
    assert_eq!(shown.due[&key("2")], at(0), "waiting: at once");
    scheduler.ended(1, pulled("x"), at(5), &wall());
    assert_eq!(scheduler.status().due[&key("1")], at(5), "the result: at once");
}

#[test]
fn a_status_that_is_too_large_loses_words_before_results() {
    let mut scheduler = scheduler(3, &[tag("1")]);
    scheduler.decide(at(0), &wall());
    scheduler.ended(1, failed(Reason::NotFound), at(0), &wall());
    let mut status = scheduler.status().status;
    fit(&mut status, 10_000);
    assert_eq!(status, scheduler.status().status);
    fit(&mut status, 10);
    let tag = &status.image_statuses["app"].tags[0];
    assert_eq!(
        (tag.message.as_ref(), tag.phase(), tag.reason()),
        (None, Phase::Failed, Some(Reason::NotFound))
    );
}

#[test]
fn texts_of_the_runtime_are_cut_however_much_room_there_is() {
    let long = "ü".repeat(MESSAGE_BYTES_MAX);
    let mut status = NodeImageStatus::default();
    let agent = status.agent.get_or_insert_default();
    (agent.version, agent.runtime) = (Some("1".to_owned()), Some(long.clone()));
    let result = ImageTagStatus {
        image_id: Some(long),
        ..ImageTagStatus::default()
    };
    status
        .image_statuses
        .entry("app".to_owned())
        .or_default()
        .tags
        .push(result);
    fit(&mut status, usize::MAX);
    let agent = status.agent.unwrap();
    assert_eq!(agent.version.as_deref(), Some("1"));
    let image_id = status.image_statuses["app"].tags[0].image_id.clone();
    for text in [agent.runtime, image_id] {
        let text = text.unwrap();
        assert!(
            text.len() <= MESSAGE_BYTES_MAX && text.starts_with("üü"),
            "{}",
            text.len()
        );
    }
}
