//! Compiles `kernels/` for what the features ask for: PTX for `cuda`, objects for `sim`.
//!
//! PTX needs clang 19 and nothing of CUDA (docs/adr/0023).

use std::path::Path;
use std::process::Command;

/// Names another compiler than the one that Debian calls so.
const CLANG: &str = "MLXCEL_CLANG";

/// Compiles what this build needs.
///
/// # Errors
/// What is missing, as a line for whoever builds.
pub(crate) fn compile(folder: &Path) -> Result<(), String> {
    println!("cargo:rerun-if-env-changed={CLANG}");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_some() {
        for target in ["sm_80", "sm_90"] {
            compile_ptx(folder, target)?;
        }
    }
    #[cfg(feature = "sim")]
    for layout in ["NV", "RDNA3"] {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .opt_level(2)
            .flag_if_supported("-Wno-unknown-pragmas")
            .define(&format!("KPORT_LAYOUT_{layout}"), None)
            .file(folder.join("kernels/sim.cpp"))
            .compile(&format!("mlxcel_sim_{}", layout.to_lowercase()));
    }
    Ok(())
}

fn compile_ptx(folder: &Path, target: &str) -> Result<(), String> {
    let clang = std::env::var(CLANG).unwrap_or_else(|_| "clang++-19".to_owned());
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let status = Command::new(&clang)
        .args([
            "-x",
            "cuda",
            "--cuda-device-only",
            "-nocudalib",
            "-nocudainc",
            "-O3",
            "-std=c++17",
        ])
        .arg(format!("--cuda-gpu-arch={target}"))
        .args(["-S", "-o"])
        .arg(Path::new(&out).join(format!("kernels_{target}.ptx")))
        .arg(folder.join("kernels/kernels.cu"))
        .status();
    let problem = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("{clang} ended with {status}"),
        Err(error) => format!("{clang}: {error}"),
    };
    Err(format!(
        "feature cuda compiles kernels with clang 19 (Debian: clang-19), or what {CLANG} names: \
         {problem}"
    ))
}
