//! Requests on their way to the API server and back: lost, late, refused, or answered.

use super::{Event, Reply, Sender, World, brief};
use crate::api::{Call, Response, Writer};
use crate::queue::Millis;

/// No call takes longer for its sender; what became of it is found out by reading.
const TIMEOUT: Millis = 5_000;

/// A request that its sender has given up arrives at most this much later.
const LATE: Millis = 3_000;

impl World {
    /// A replica or an agent sends a request.
    pub(super) fn send(&mut self, sender: Sender, id: u64, call: Call) {
        if let (Sender::Replica { .. }, Some(key)) = (sender, call.writes()) {
            let (key, now) = (key.clone(), self.now());
            self.checks.requested(&key, now);
        }
        let reachable = self.is_reachable(sender);
        let faults = &self.faults;
        let random = &mut self.random;
        let unanswered = (TIMEOUT, Response::Unknown);
        let (arrives, given_up) = if !reachable || random.permille(faults.lost_requests) {
            (None, Some(unanswered))
        } else if random.permille(faults.late_requests) {
            let late = TIMEOUT + random.between(1..=LATE);
            (Some((late, Reply::TooLate)), Some(unanswered))
        } else if random.permille(faults.lost_responses) {
            (Some((random.between(1..=50), Reply::Lost)), Some(unanswered))
        } else if random.permille(faults.errors) {
            // 429, or 500 before anything was done.
            (None, Some((random.between(1..=20), Response::Unknown)))
        } else if random.permille(faults.errors_after) {
            (Some((random.between(1..=20), Reply::Error)), None)
        } else if random.permille(faults.slow_requests) {
            let (there, back) = (random.between(1..=2_000), random.between(1..=2_000));
            (Some((there, Reply::After(back))), None)
        } else {
            let (there, back) = (random.between(1..=3), random.between(1..=3));
            (Some((there, Reply::After(back))), None)
        };
        if let Some((after, response)) = given_up {
            self.queue.after(after, Event::Respond { sender, id, response });
        }
        if let Some((after, reply)) = arrives {
            let arrive = Event::Arrive {
                sender,
                id,
                call,
                reply,
            };
            self.queue.after(after, arrive);
        } else {
            self.note(|| format!("{sender:?} request {id} is lost: {}", brief(&call)));
        }
    }

    fn is_reachable(&self, sender: Sender) -> bool {
        let online = match sender {
            Sender::Replica { .. } => true,
            Sender::Agent { index, .. } => self.machines.get(index).is_some_and(|machine| machine.is_online),
        };
        online && self.api_down_until <= self.now()
    }

    /// A request reaches the API server.
    pub(super) fn arrive(&mut self, sender: Sender, id: u64, call: &Call, reply: Reply) {
        let writer = self.writer(sender, reply);
        // It may undo a report that the agent made since.
        if let (Sender::Agent { index, .. }, Reply::TooLate) = (sender, reply) {
            self.disturb_node(index);
        }
        let response = match self.refusal(call) {
            Some(why) if matches!(sender, Sender::Replica { .. }) => Response::Refused(why),
            _ => {
                if let Sender::Replica { index, .. } = sender {
                    let clock = self.replicas.get(index).map(|replica| replica.clock);
                    self.checks.writes_by_clock(clock.unwrap_or_default());
                }
                let (now, meant) = (self.time(), self.meant(sender, call));
                let response = self.api.call(call, writer, now);
                if let (Response::Object(object), Some(meant)) = (&response, meant) {
                    self.checks.status_written(&object.key, &object.uid, &meant);
                }
                response
            }
        };
        self.note(|| {
            let outcome = match &response {
                Response::Object(object) => format!("version {}", object.version),
                other => format!("{other:?}"),
            };
            format!("{sender:?} {id}: {} -> {outcome}, {reply:?}", brief(call))
        });
        self.publish();
        let (after, response) = match reply {
            Reply::Lost | Reply::TooLate => return,
            Reply::Error => (1, Response::Unknown),
            Reply::After(after) => (after, response),
        };
        self.queue.after(after, Event::Respond { sender, id, response });
    }

    /// Who writes, as the checks see it.
    fn writer(&self, sender: Sender, reply: Reply) -> Writer {
        match sender {
            Sender::Agent { .. } => Writer::Agent,
            Sender::Replica { index, life, term } => {
                let replica = self.replicas.get(index);
                let leads = replica.is_some_and(|replica| replica.life == life && replica.term == term);
                Writer::Controller {
                    late: !leads || term.is_none() || matches!(reply, Reply::Lost | Reply::TooLate),
                }
            }
        }
    }

    /// Why the API server refuses a request at this time, if it does.
    fn refusal(&self, call: &Call) -> Option<String> {
        let name = match call {
            Call::Create(crate::api::Kind::NodeImage, value) => value["metadata"]["name"].as_str(),
            Call::JsonPatch(key, _) | Call::Delete { key, .. } if key.kind == crate::api::Kind::NodeImage => {
                Some(key.name.as_str())
            }
            _ => None,
        };
        let until = self.refused_until.get(name?)?;
        (self.now() < *until).then(|| "an admission policy refuses this NodeImage".to_owned())
    }

    /// The uid of the object that a status is about: that of the job, or of the NodeImage that the agent obeyed.
    fn meant(&self, sender: Sender, call: &Call) -> Option<String> {
        match (sender, call) {
            (Sender::Replica { .. }, Call::JsonPatchStatus(_, patch)) => patch[0]["value"].as_str().map(str::to_owned),
            (Sender::Agent { index, life }, Call::JsonPatchStatus(..)) => {
                let machine = self.machines.get(index).filter(|machine| machine.life == life)?;
                machine.agent.as_ref()?.uid().map(str::to_owned)
            }
            _ => None,
        }
    }

    /// A response reaches its sender.
    pub(super) fn respond(&mut self, sender: Sender, id: u64, response: Response) {
        match sender {
            Sender::Replica { index, life, .. } => {
                let now = self.now();
                if let Some(replica) = self.replicas.get_mut(index).filter(|replica| replica.life == life) {
                    replica.respond(id, response);
                    self.wake_replica(index, now);
                }
            }
            Sender::Agent { index, life } => self.reported(index, life, id, response),
        }
    }
}
