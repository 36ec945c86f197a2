//! What people and the world do to a run: jobs and nodes come, change and go; machines, links and clocks fail and recover.

mod failures;
mod people;

use serde_json::json;

use super::{Event, World};
use crate::api::{Call, Key, Kind};
use crate::queue::Millis;
use crate::scenario::NAMESPACE;

/// Something that is done to the world.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Creates an object; one that is there already stays.
    Create(Call),
    EditJob,
    DeleteJob,
    /// Deletes a job and creates another one of the same name.
    ReplaceJob,
    ReplaceAgain(Key, u64),
    Relabel,
    SetReady {
        node: usize,
        ready: bool,
    },
    NotReady,
    DeleteNode,
    DeleteNodeImage,
    /// Writes an entry of a NodeImage by hand.
    WriteEntry,
    /// Touches a NodeImage without changing what it asks for.
    TouchNodeImage,
    MovePod,
    SetSecret,
    DeleteSecret,
    StopAgent,
    StartAgent(usize),
    LoseState,
    Reboot,
    GoOffline,
    GoOnline(usize),
    FillDisk,
    FreeDisk(usize),
    StopRuntime,
    StartRuntime(usize),
    CollectImages,
    StepNodeClock,
    StepControllerClock,
    RegistryOutage,
    ApiOutage,
    RefuseNodeImage,
    RestartReplica,
    ChangeLeader,
    Lead(usize),
}

impl Act {
    /// One of those that need no other before them.
    pub(crate) fn draw(world: &mut World) -> Self {
        let acts = [
            Self::EditJob,
            Self::EditJob,
            Self::DeleteJob,
            Self::ReplaceJob,
            Self::Relabel,
            Self::NotReady,
            Self::DeleteNode,
            Self::DeleteNodeImage,
            Self::WriteEntry,
            Self::TouchNodeImage,
            Self::MovePod,
            Self::SetSecret,
            Self::DeleteSecret,
            Self::StopAgent,
            Self::LoseState,
            Self::Reboot,
            Self::GoOffline,
            Self::FillDisk,
            Self::StopRuntime,
            Self::CollectImages,
            Self::StepNodeClock,
            Self::StepControllerClock,
            Self::RegistryOutage,
            Self::ApiOutage,
            Self::RefuseNodeImage,
            Self::RestartReplica,
            Self::ChangeLeader,
            Self::ChangeLeader,
        ];
        world.random.pick(&acts).cloned().unwrap_or(Self::EditJob)
    }
}

/// Between the two halves of an act: a deletion and a new creation, a failure and the recovery.
pub(crate) const LONGEST_PAUSE: Millis = 60_000;

impl World {
    pub(super) fn act(&mut self, act: Act) {
        let now = self.now();
        let pause = self.random.between(100..=LONGEST_PAUSE);
        let index = self.random.index(self.machines.len());
        match act {
            Act::Create(call) => {
                self.write(&call);
            }
            Act::EditJob => self.edit_job(),
            Act::DeleteJob => self.delete_job(),
            Act::ReplaceJob => self.replace_any_job(),
            Act::ReplaceAgain(key, times) => self.replace_job(&key, times),
            Act::Relabel => self.relabel(),
            Act::SetReady { node, ready } => self.set_ready(node, ready),
            Act::NotReady => {
                self.set_ready(index, false);
                self.later(
                    pause,
                    Act::SetReady {
                        node: index,
                        ready: true,
                    },
                );
            }
            Act::DeleteNode => self.delete_node(index),
            Act::DeleteNodeImage => {
                if let Some(name) = self.disturb_node(index) {
                    let key = Key::cluster(Kind::NodeImage, &name);
                    self.write(&Call::Delete { key, uid: None });
                }
            }
            Act::WriteEntry => self.write_entry(index),
            Act::TouchNodeImage => {
                if let Some(name) = self.machine_name(index) {
                    let patch = json!({"spec": {"images": {"touched": null}}, "metadata": {"annotations": {"touched": now.to_string()}}});
                    self.write(&Call::Merge(Key::cluster(Kind::NodeImage, &name), patch));
                }
            }
            Act::MovePod => self.move_pod(),
            Act::SetSecret => self.set_secret(),
            Act::DeleteSecret => {
                let key = Key::new(Kind::Secret, NAMESPACE, "login");
                self.write(&Call::Delete { key, uid: None });
                self.later(pause, Act::SetSecret);
            }
            Act::RefuseNodeImage => {
                if let Some(name) = self.machine_name(index) {
                    self.refused_until.insert(name, now + pause);
                }
            }
            Act::RegistryOutage => self.registry_down_until = now + pause,
            Act::ApiOutage => self.api_down_until = now + pause / 4,
            Act::StepControllerClock | Act::RestartReplica | Act::ChangeLeader | Act::Lead(_) => {
                self.act_on_controller(&act, pause);
            }
            act => self.act_on_machine(&act, index, pause),
        }
    }

    pub(crate) fn later(&mut self, pause: Millis, act: Act) {
        self.queue.after(pause, Event::Act(act));
    }

    fn machine_name(&self, index: usize) -> Option<String> {
        self.machines.get(index).map(|machine| machine.name.clone())
    }

    pub(super) fn disturb_node(&mut self, index: usize) -> Option<String> {
        let name = self.machine_name(index)?;
        self.checks.disturb_node(&name, self.queue.now());
        Some(name)
    }
}
