//! When an image is pulled again that was there and was removed by somebody else: the kubelet's garbage collection, or a person.
//!
//! An image that had been there for a while is pulled again at once. One that is removed soon after each pull is probably
//! removed by the kubelet, so that the pause before the next pull doubles, up to an hour. An image that does not fit below the
//! share of the filesystem at which the kubelet removes images waits until it does.

use std::time::Duration;

use larder_model::{ByteSize, Reason};

use super::checks::room_for;
use super::entry_state::{Bytes, EntryState, Note, Stage, Trouble};

/// An image that was there this long is pulled again at once, however often it was removed before.
const STEADY: Duration = Duration::from_hours(1);

/// The longest pause.
const LONGEST: Duration = Duration::from_hours(1);

/// Takes in that an image is not there any more.
pub(super) fn lose(state: &mut EntryState, now: Duration) {
    if STEADY <= now.saturating_sub(state.changed) {
        state.lost = 0;
    }
    state.lost += 1;
    state.again = true;
    state.attempts = 0;
    state.waits = 0;
    state.start_time = None;
    state.completion_time = None;
    // Its size is known, and whether it fits depends on that.
    state.bytes = state.bytes.map(|bytes| Bytes { done: 0, ..bytes });
    state.origin = None;
    let pause = pause(state.lost);
    state.note = Some(Note {
        reason: None,
        message: message(state.lost, pause),
    });
    state.enter(Stage::Look { until: now + pause }, now);
}

/// Whether an image that was lost has no room on the node, and why it therefore waits. `room` are the bytes that images may
/// still take up before the kubelet removes some, where that is known.
pub(super) fn lacks_room(state: &EntryState, room: Option<ByteSize>) -> Option<Trouble> {
    let needed = room_for(ByteSize(state.bytes.map_or(0, |bytes| bytes.total)));
    let lacks = room.is_some_and(|room| room.0 == 0 || room < needed);
    lacks.then(|| {
        Trouble::new(
            Reason::NoSpace,
            "The image was removed from the node, and not by Larder. It would fill the image filesystem so far that the \
             kubelet removes images again, so it is pulled when there is room.",
        )
    })
}

fn pause(losses: u32) -> Duration {
    match losses {
        0 | 1 => Duration::ZERO,
        more => Duration::from_mins(1 << (more - 2).min(6)).min(LONGEST),
    }
}

fn message(losses: u32, pause: Duration) -> String {
    if pause.is_zero() {
        return "The image was removed from the node, and not by Larder; it is pulled again.".to_owned();
    }
    format!(
        "The image was removed from the node {losses} times soon after it had been pulled, and not by Larder, probably by \
         the kubelet's garbage collection. It is pulled again after {} min; pin: true keeps an image on the node.",
        pause.as_secs() / 60
    )
}

#[cfg(test)]
mod tests {
    use larder_model::Phase;
    use rstest::rstest;

    use super::*;

    fn there(bytes: Option<u64>) -> EntryState {
        let mut state = EntryState::new(1, Stage::Done(Phase::Succeeded), Duration::ZERO);
        state.bytes = bytes.map(|total| Bytes { done: total, total });
        state
    }

    #[test]
    fn the_pause_doubles_while_the_image_does_not_stay() {
        let (mut state, mut now) = (there(None), Duration::ZERO);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            lose(&mut state, now);
            let Stage::Look { until } = state.stage else { panic!() };
            pauses.push(until.checked_sub(now).unwrap().as_secs() / 60);
            now = until + Duration::from_mins(1);
            state.enter(Stage::Done(Phase::Succeeded), until);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        lose(&mut state, now + STEADY);
        assert_eq!(state.lost, 1, "it had been there for long");
    }

    #[rstest]
    #[case::fits(Some(100), Some(300), false)]
    #[case::does_not_fit(Some(100), Some(299), true)]
    #[case::of_unknown_size(None, Some(1), false)]
    #[case::clean_up_is_due(None, Some(0), true)]
    #[case::nobody_can_tell(Some(100), None, false)]
    fn an_image_waits_unless_it_fits(#[case] bytes: Option<u64>, #[case] room: Option<u64>, #[case] waits: bool) {
        let mut state = there(bytes);
        lose(&mut state, Duration::ZERO);
        let trouble = lacks_room(&state, room.map(ByteSize));
        assert_eq!(trouble.is_some_and(|trouble| trouble.reason == Reason::NoSpace), waits);
    }
}
