//! Whether a campaign is over.

use jiff::{SignedDuration, Timestamp};

use crate::campaign::later;
use crate::progress::Progress;

/// A campaign that matches no node waits this long for one to appear.
pub const NO_NODE_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// How a campaign ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every node succeeded or failed.
    AllDone,
    /// No node matched, and none appeared.
    NoNodes,
    /// Its deadline passed.
    Deadline,
    /// More nodes failed than may.
    TooManyFailures,
}

impl Progress {
    /// How it ended, if it is over at `now`. Asked after [`Progress::decide`], which looks at the nodes whose time has come.
    pub fn end(&self, now: Timestamp) -> Option<End> {
        if self.campaign.is_endless() {
            return None;
        }
        let counts = self.counts();
        if self.total() != 0 && counts.finished() == counts.desired {
            return Some(End::AllDone);
        }
        if self
            .campaign
            .deadline(self.started)
            .is_some_and(|deadline| deadline <= now)
        {
            return Some(End::Deadline);
        }
        // What is under way is waited for: its bytes are paid for, and its result is worth knowing.
        if self.too_many_failures() && counts.slots == 0 {
            return Some(End::TooManyFailures);
        }
        let alone = self.total() == 0 && self.no_node_limit() <= now;
        alone.then_some(End::NoNodes)
    }

    /// Whether more nodes failed than may.
    pub(crate) fn too_many_failures(&self) -> bool {
        let failed = self.counts().failed + self.campaign.failed_before;
        self.campaign.gives_up_after(failed, self.total())
    }

    /// Nodes of the job: those that are selected, and those that failed before.
    fn total(&self) -> usize {
        self.counts().desired + self.campaign.failed_before
    }

    /// When it ends at the latest, by time alone.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        if self.campaign.is_endless() {
            return None;
        }
        let deadline = self.campaign.deadline(self.started);
        let grace = (self.total() == 0).then(|| self.no_node_limit());
        [deadline, grace].into_iter().flatten().min()
    }

    /// Until when it waits for a node to appear.
    pub(crate) fn no_node_limit(&self) -> Timestamp {
        later(self.empty_since.max(self.started), NO_NODE_GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Campaign, Ending, MaxFailures};
    use crate::progress::{OrderResult, Step};
    use crate::view::samples::{able, at, blocked, campaign, node, ordered};
    use larder_api::contract::Answer;
    use larder_model::Reason;
    use rstest::rstest;

    fn progress(campaign: Campaign, answers: &[Answer]) -> Progress {
        let mut progress = Progress::new(campaign, at(0));
        for (number, answer) in answers.iter().enumerate() {
            progress.node_changed(&node(number), ordered(at(0), *answer), at(0));
        }
        progress
    }

    const FAILED: Answer = Answer::Failed(Reason::NotFound);

    #[rstest]
    #[case::all_succeeded(&[Answer::Succeeded, Answer::Succeeded], Some(End::AllDone))]
    #[case::a_failure_is_an_end_too(&[Answer::Succeeded, FAILED], Some(End::AllDone))]
    #[case::one_pulls(&[Answer::Succeeded, Answer::Pulling], None)]
    #[case::no_node_yet(&[], None)]
    fn ends(#[case] answers: &[Answer], #[case] want: Option<End>) {
        assert_eq!(progress(campaign(1), answers).end(at(1)), want);
    }

    #[test]
    fn an_endless_campaign_does_not_end() {
        let mut endless = campaign(1);
        endless.ending = Ending::Never;
        let progress = progress(endless, &[Answer::Succeeded]);
        assert_eq!(progress.end(at(10_000_000)), None);
    }

    #[test]
    fn a_deadline_ends_it_unless_all_are_done() {
        let mut bounded = campaign(1);
        bounded.ending = Ending::Always {
            deadline: Some(SignedDuration::from_secs(60)),
            ttl: None,
        };
        let running = progress(bounded.clone(), &[Answer::Pulling]);
        assert_eq!(running.next_wake(), Some(at(60)));
        assert_eq!(running.end(at(59)), None);
        assert_eq!(running.end(at(60)), Some(End::Deadline));
        let done = progress(bounded, &[Answer::Succeeded]);
        assert_eq!(done.end(at(61)), Some(End::AllDone));
    }

    #[test]
    fn nobody_to_serve_is_waited_for_half_a_minute() {
        let mut alone = progress(campaign(1), &[]);
        assert_eq!(alone.next_wake(), Some(at(30)));
        assert_eq!(alone.end(at(29)), None);
        assert_eq!(alone.end(at(30)), Some(End::NoNodes));
        alone.node_changed(&node(0), able(), at(29));
        assert_eq!(alone.end(at(30)), None);
    }

    #[test]
    fn the_last_node_that_leaves_starts_the_grace_anew() {
        let mut alone = progress(campaign(1), &[Answer::Pulling]);
        alone.node_changed(&node(0), crate::NodeView::default(), at(100));
        assert_eq!(alone.end(at(129)), None);
        assert_eq!(alone.end(at(130)), Some(End::NoNodes));
    }

    #[rstest]
    #[case::as_many_as_allowed(MaxFailures::Count(2), None)]
    #[case::one_more(MaxFailures::Count(1), Some(End::TooManyFailures))]
    #[case::percent(MaxFailures::Percent(34), Some(End::TooManyFailures))]
    #[case::percent_that_is_met(MaxFailures::Percent(50), None)]
    fn too_many_failures(#[case] max: MaxFailures, #[case] want: Option<End>) {
        let mut strict = campaign(1);
        strict.max_failures = Some(max);
        let mut progress = progress(strict, &[FAILED, FAILED, Answer::Succeeded]);
        progress.node_changed(&node(9), able(), at(1));
        assert_eq!(progress.end(at(1)), want);
        let goes_on = want.is_none();
        assert_eq!(!progress.decide(9, at(1)).is_empty(), goes_on);
    }

    #[rstest]
    #[case::nobody_else(1, None, &[], Some(End::AllDone))]
    #[case::the_others_are_done(1, None, &[Answer::Succeeded], Some(End::AllDone))]
    #[case::one_pulls(1, None, &[Answer::Pulling], None)]
    #[case::as_many_as_allowed(1, Some(MaxFailures::Count(2)), &[FAILED, Answer::Waiting(None)], None)]
    #[case::one_more(2, Some(MaxFailures::Count(2)), &[FAILED, Answer::Succeeded], Some(End::TooManyFailures))]
    #[case::share_of_all(2, Some(MaxFailures::Percent(50)), &[Answer::Succeeded], None)]
    #[case::more_than_the_share(3, Some(MaxFailures::Percent(50)), &[Answer::Succeeded], Some(End::TooManyFailures))]
    fn nodes_that_failed_before_the_start_count(
        #[case] failed_before: usize,
        #[case] max_failures: Option<MaxFailures>,
        #[case] answers: &[Answer],
        #[case] want: Option<End>,
    ) {
        let mut progress = progress(
            Campaign {
                max_failures,
                failed_before,
                ..campaign(1)
            },
            answers,
        );
        // Somebody waits, unless all are said to be done.
        if max_failures.is_some() {
            progress.node_changed(&node(9), able(), at(1));
        }
        assert_eq!(progress.end(at(1)), want);
        let given_up = want == Some(End::TooManyFailures);
        assert_eq!(progress.too_many_failures(), given_up);
        assert!(!given_up || progress.decide(9, at(1)).is_empty());
    }

    #[test]
    fn what_is_under_way_is_waited_for() {
        let mut strict = campaign(2);
        strict.max_failures = Some(MaxFailures::Count(0));
        let mut progress = progress(strict, &[FAILED, Answer::Pulling]);
        progress.node_changed(&node(9), able(), at(1));
        assert_eq!(progress.end(at(1)), None);
        progress.node_changed(&node(1), ordered(at(0), Answer::Succeeded), at(2));
        assert_eq!(progress.end(at(2)), Some(End::TooManyFailures));
    }

    #[test]
    fn a_job_that_ends_waits_for_dead_nodes_no_longer_than_the_response_time() {
        let mut progress = progress(campaign(1), &[Answer::Succeeded]);
        progress.node_changed(&node(1), blocked(Reason::NodeNotReady, at(0)), at(0));
        assert_eq!(progress.decide(9, at(599)), []);
        assert_eq!(progress.end(at(599)), None);
        progress.decide(9, at(600));
        assert_eq!(progress.end(at(600)), Some(End::AllDone));
        assert_eq!(progress.counts().failed, 1);
    }

    #[test]
    fn a_node_that_came_back_in_time_is_served() {
        let mut progress = progress(campaign(1), &[Answer::Succeeded]);
        progress.node_changed(&node(1), blocked(Reason::NodeNotReady, at(0)), at(0));
        progress.node_changed(&node(1), able(), at(300));
        assert_eq!(progress.decide(9, at(300)), [Step::HandOut(node(1))]);
        progress.node_changed(&node(1), ordered(at(300), Answer::Succeeded), at(310));
        progress.settle(&node(1), OrderResult::Done, at(310));
        assert_eq!(progress.end(at(310)), Some(End::AllDone));
    }
}
