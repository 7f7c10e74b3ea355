//! NVIDIA GPUs, asked through the driver's own library (NVML), which is loaded when it is
//! needed: a machine without the driver runs the same program.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PerformancePolicy, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::gpu::{Gpu, GpuReading, Slowdown};

/// The pid namespace in which the kernel starts: pids there are everybody's.
/// (`PROC_PID_INIT_INO` of the kernel.)
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The limits whose time counts as held down.
const HOLDING_DOWN: [PerformancePolicy; 3] = [
    PerformancePolicy::Thermal,
    PerformancePolicy::BoardLimit,
    PerformancePolicy::Reliability,
];

/// Every NVIDIA GPU that this machine, or its container, shows.
pub struct Nvidia {
    nvml: Nvml,
    devices: u32,
    holders_may_hide: bool,
}

impl fmt::Debug for Nvidia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvidia")
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// One GPU for a reader.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Processes that hold it.
    pub holders: usize,
    /// Temperature in °C.
    pub temperature_c: Option<u32>,
    /// What slows it down, power cap left out.
    pub slowdowns: BTreeSet<Slowdown>,
}

/// Opens the driver. `proc` is the root of procfs.
///
/// # Errors
/// One line: no driver, no device, or a driver that does not tell who holds a device.
pub fn open(proc: &Path) -> Result<Nvidia, String> {
    let nvml = Nvml::init().map_err(|error| match error {
        NvmlError::LibloadingError(reason) => format!("no NVIDIA driver ({reason})"),
        other => format!("the NVIDIA driver cannot be used: {other}"),
    })?;
    let devices = nvml
        .device_count()
        .map_err(|error| format!("NVIDIA devices cannot be counted: {error}"))?;
    if devices == 0 {
        return Err("the NVIDIA driver shows no device".to_owned());
    }
    let namespace = std::fs::read_link(proc.join("self/ns/pid"));
    let is_initial = namespace.is_ok_and(|link| link.as_os_str() == INITIAL_PID_NAMESPACE);
    let gpus = Nvidia {
        nvml,
        devices,
        holders_may_hide: !is_initial,
    };
    for device in gpus.all() {
        processes(&device)
            .map_err(|error| format!("the driver does not tell who holds a GPU: {error}"))?;
    }
    Ok(gpus)
}

/// As [`open`], for a guard.
///
/// # Errors
/// As [`open`].
pub fn open_gpu(proc: &Path) -> Result<Box<dyn Gpu>, String> {
    open(proc).map(|gpus| Box::new(gpus) as Box<dyn Gpu>)
}

impl Nvidia {
    /// One line per GPU.
    #[must_use]
    pub fn describe(&self) -> Vec<Described> {
        let one = |device: Device<'_>| Described {
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            holders: processes(&device).map_or(0, |pids| pids.len()),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            slowdowns: slowdowns(&device)
                .into_iter()
                .filter(|slowdown| slowdown.disturbs())
                .collect(),
        };
        self.all().map(one).collect()
    }

    /// Version of the driver, such as `580.159.04`.
    #[must_use]
    pub fn driver(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// Those that answer: one that fell off the bus is the measured program's own error.
    fn all(&self) -> impl Iterator<Item = Device<'_>> {
        (0..self.devices).filter_map(|index| self.nvml.device_by_index(index).ok())
    }
}

impl Gpu for Nvidia {
    fn holders(&self) -> Vec<u32> {
        let pids: BTreeSet<u32> = self
            .all()
            .filter_map(|device| processes(&device).ok())
            .flatten()
            .collect();
        pids.into_iter().collect()
    }

    fn holders_may_hide(&self) -> bool {
        self.holders_may_hide
    }

    fn reading(&self) -> GpuReading {
        let mut reading = GpuReading::default();
        for device in self.all() {
            let clock = device.clock_info(Clock::SM).ok().map(f64::from);
            reading.clock_mhz = highest(reading.clock_mhz, clock);
            let busy = device.utilization_rates().ok();
            reading.busy_pct = highest(reading.busy_pct, busy.map(|share| share.gpu.into()));
            let degrees = device.temperature(TemperatureSensor::Gpu).ok();
            reading.temperature_c = highest(reading.temperature_c, degrees.map(f64::from));
            if let Ok(milliwatts) = device.power_usage() {
                *reading.power_w.get_or_insert(0.0) += f64::from(milliwatts) / 1e3;
            }
            reading.slowdowns.extend(slowdowns(&device));
            for policy in HOLDING_DOWN {
                if let Ok(time) = device.violation_status(policy) {
                    *reading.held_down_ns.get_or_insert(0) += time.violation_time;
                }
            }
        }
        reading
    }
}

fn highest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

/// Pids of the processes that compute or draw on a device.
fn processes(device: &Device<'_>) -> Result<BTreeSet<u32>, NvmlError> {
    let pids = |list: Vec<ProcessInfo>| list.into_iter().map(|process| process.pid);
    let computing = device.running_compute_processes()?;
    // Cards for servers draw nothing and need not answer.
    let drawing = device.running_graphics_processes().unwrap_or_default();
    Ok(pids(computing).chain(pids(drawing)).collect())
}

fn slowdowns(device: &Device<'_>) -> BTreeSet<Slowdown> {
    let reasons = device.current_throttle_reasons();
    reasons.map_or_else(|_| BTreeSet::new(), of_reasons)
}

/// The driver's reasons that are slowdowns; an idle card and a clock that somebody chose
/// are none.
fn of_reasons(reasons: ThrottleReasons) -> BTreeSet<Slowdown> {
    let heat = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
    let known = [
        (heat, Slowdown::Heat),
        (
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            Slowdown::PowerBrake,
        ),
        (ThrottleReasons::SYNC_BOOST, Slowdown::SyncBoost),
        (ThrottleReasons::SW_POWER_CAP, Slowdown::PowerCap),
    ];
    let mut found: BTreeSet<Slowdown> = known
        .into_iter()
        .filter(|(bits, _)| reasons.intersects(*bits))
        .map(|(_, slowdown)| slowdown)
        .collect();
    let named = found.contains(&Slowdown::Heat) || found.contains(&Slowdown::PowerBrake);
    // Set beside the two that say why.
    if reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !named {
        found.insert(Slowdown::Hardware);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_card_and_a_chosen_clock_are_no_slowdown() {
        let idle = ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING;
        assert!(of_reasons(idle).is_empty());
    }

    #[test]
    fn a_hardware_slowdown_is_named_by_its_reason_where_there_is_one() {
        let hardware = ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(of_reasons(hardware), [Slowdown::Hardware].into());
        let hot = hardware | ThrottleReasons::HW_THERMAL_SLOWDOWN | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(of_reasons(hot), [Slowdown::Heat, Slowdown::PowerCap].into());
    }
}
