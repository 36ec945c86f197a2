//! Machines, links, clocks and replicas that fail and recover.

use jiff::SignedDuration;
use larder_model::ByteSize;

use super::super::{Watcher, World};
use super::Act;
use crate::faults::Faults;
use crate::queue::Millis;

impl World {
    pub(super) fn act_on_controller(&mut self, act: &Act, pause: Millis) {
        let index = self.random.index(self.replicas.len());
        match act {
            Act::StepControllerClock => {
                let step = self.clock_step();
                if let Some(replica) = self.replicas.get_mut(index) {
                    replica.clock += step;
                }
                self.checks.clock_stepped(self.queue.now());
            }
            Act::RestartReplica => {
                let term = self.replicas.get(index).and_then(|replica| replica.term);
                self.start_replica(index);
                if term.is_some() {
                    self.later(pause.min(15_000), Act::Lead(index));
                }
            }
            Act::ChangeLeader => {
                for replica in &mut self.replicas {
                    replica.term = None;
                }
                self.later(pause.min(15_000), Act::Lead(index));
            }
            Act::Lead(index) => {
                // Its clock may be another one than that of the last leader.
                self.checks.clock_stepped(self.queue.now());
                self.lead(*index);
            }
            _ => {}
        }
    }

    pub(super) fn act_on_machine(&mut self, act: &Act, index: usize, pause: Millis) {
        let now = self.now();
        let step = self.clock_step();
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        let name = machine.name.clone();
        match act {
            Act::StopAgent => {
                machine.stop_agent();
                self.later(pause, Act::StartAgent(index));
            }
            Act::LoseState => {
                machine.stop_agent();
                machine.lose_state();
                self.checks.disturb_node(&name, now);
                self.later(pause / 10, Act::StartAgent(index));
            }
            Act::Reboot => {
                machine.reboot(now);
                self.later(pause, Act::StartAgent(index));
            }
            Act::GoOffline => {
                machine.is_online = false;
                self.later(pause, Act::GoOnline(index));
            }
            Act::FillDisk => {
                machine.disk_is_full = true;
                self.later(pause, Act::FreeDisk(index));
            }
            Act::StopRuntime => {
                machine.runtime_is_down = true;
                self.later(pause, Act::StartRuntime(index));
            }
            Act::CollectImages => {
                let keep = self.random.coin();
                machine.collect_garbage(|image| keep && image.name().len() % 2 == 0);
                self.checks.disturb_node(&name, now);
                self.show_runtime(index);
            }
            Act::StepNodeClock => machine.wall += step,
            _ => self.restore_machine(act),
        }
    }

    /// What failed on a machine works again.
    fn restore_machine(&mut self, act: &Act) {
        let (Act::StartAgent(index) | Act::GoOnline(index) | Act::FreeDisk(index) | Act::StartRuntime(index)) = *act
        else {
            return;
        };
        let now = self.now();
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        match act {
            Act::GoOnline(_) => {
                machine.is_online = true;
                machine.write_not_before = 0;
                self.watch(Watcher::Agent(index), 0);
                self.wake_agent(index, now);
            }
            Act::FreeDisk(_) => {
                machine.disk_is_full = false;
                self.show_runtime(index);
            }
            Act::StartRuntime(_) => {
                machine.runtime_is_down = false;
                self.show_runtime(index);
            }
            _ => self.start_stopped_agent(index),
        }
    }

    /// The faults are over, and everything that failed works again.
    pub(crate) fn calm_down(&mut self) {
        self.note(|| "the faults are over".to_owned());
        let now = self.now();
        self.faults = Faults {
            pull_millis: self.faults.pull_millis.min(5_000),
            ..Faults::none()
        };
        self.api_down_until = now;
        self.registry_down_until = now;
        self.refused_until.clear();
        if !self.replicas.iter().any(|replica| replica.term.is_some()) {
            self.lead(0);
        }
        for index in 0..self.machines.len() {
            let Some(machine) = self.machines.get_mut(index) else {
                continue;
            };
            machine.disk_is_full = false;
            machine.runtime_is_down = false;
            let (is_down, was_offline) = (machine.agent.is_none(), !machine.is_online);
            machine.is_online = true;
            machine.write_not_before = 0;
            if is_down {
                self.start_agent(index);
            } else if was_offline {
                self.watch(Watcher::Agent(index), 0);
            }
            self.show_runtime(index);
            self.set_ready(index, true);
        }
    }

    fn start_stopped_agent(&mut self, index: usize) {
        if self.machines.get(index).is_some_and(|machine| machine.agent.is_none()) {
            self.start_agent(index);
        }
    }

    /// A second, an hour, a day or most of a lifetime, in either direction.
    fn clock_step(&mut self) -> SignedDuration {
        let seconds = [1, 30, 600, 7_200, 90_000, 500_000_000];
        let step = seconds[self.random.index(seconds.len())];
        SignedDuration::from_secs(if self.random.coin() { step } else { -step })
    }

    /// The agent asks the runtime what it holds.
    pub(crate) fn show_runtime(&mut self, index: usize) {
        let now = self.now();
        let Some(machine) = self.machines.get_mut(index) else {
            return;
        };
        let steady = machine.steady(now);
        if let Some(agent) = &mut machine.agent {
            let room = ByteSize(if machine.disk_is_full { 0 } else { u64::MAX });
            agent.take_inventory(machine.images.iter(), room, steady);
            self.wake_agent(index, now);
        }
    }
}
