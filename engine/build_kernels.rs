//! Compiles `kernels/` for what the features ask for: PTX for `cuda`, objects for `sim`.
//!
//! PTX needs clang 19 and nothing of CUDA (docs/adr/0023). Where NVIDIA's assembler is found, the
//! chip that the speeds are about gets machine code, too, which the driver then need not make.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names another compiler than the one that Debian calls so.
const CLANG: &str = "MLXCEL_CLANG";

/// Names NVIDIA's assembler; otherwise it is looked for on the path.
const PTXAS: &str = "PTXAS";

/// The target that gets machine code where there is an assembler.
const ASSEMBLED: &str = "sm_90a";

/// Compiles what this build needs; the images for NVIDIA GPUs that it has, `none` without any.
///
/// # Errors
/// What is missing, as a line for whoever builds.
pub(crate) fn compile(folder: &Path) -> Result<String, String> {
    println!("cargo:rerun-if-env-changed={CLANG}");
    println!("cargo:rerun-if-env-changed={PTXAS}");
    let mut images = "none".to_owned();
    if std::env::var_os("CARGO_FEATURE_CUDA").is_some() {
        for target in ["sm_80", "sm_90", ASSEMBLED] {
            compile_ptx(folder, target)?;
        }
        images = match assemble(folder)? {
            true => format!("ptx,{ASSEMBLED}"),
            false => "ptx".to_owned(),
        };
    }
    #[cfg(feature = "sim")]
    for layout in ["NV", "RDNA3"] {
        compile_sim(folder, layout)?;
    }
    Ok(images)
}

#[cfg(feature = "sim")]
fn compile_sim(folder: &Path, layout: &str) -> Result<(), String> {
    let library = format!("mlxcel_sim_{}", layout.to_lowercase());
    let made = Made::of(folder, &format!("lib{library}.a"), "c++")?;
    if made.is_up_to_date() {
        println!("cargo:rustc-link-search=native={}", made.out.display());
        println!("cargo:rustc-link-lib=static={library}");
        println!("cargo:rustc-link-lib=stdc++");
        return Ok(());
    }
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag_if_supported("-Wno-unknown-pragmas")
        .define(&format!("KPORT_LAYOUT_{layout}"), None)
        .file(folder.join("kernels/sim.cpp"))
        .compile(&library);
    made.keep()
}

/// A file made from the kernels, and what it was made from: this script runs at every change of the
/// engine, and compiling kernels takes longer than the engine.
struct Made {
    out: PathBuf,
    file: String,
    sources: String,
}

impl Made {
    fn of(folder: &Path, file: &str, compiler: &str) -> Result<Self, String> {
        let mut hasher = DefaultHasher::new();
        (compiler, include_str!("build_kernels.rs")).hash(&mut hasher);
        for part in ["kernels", "kernels/compat"] {
            let unreadable = |error| format!("{}: {error}", folder.join(part).display());
            let entries = std::fs::read_dir(folder.join(part)).map_err(unreadable)?;
            let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths.iter().filter(|path| path.is_file()) {
                let text = std::fs::read(path);
                text.map_err(|error| format!("{}: {error}", path.display()))?
                    .hash(&mut hasher);
            }
        }
        Ok(Self {
            out: std::env::var_os("OUT_DIR").unwrap_or_default().into(),
            file: file.to_owned(),
            sources: format!("{:016x}", hasher.finish()),
        })
    }

    fn path(&self) -> PathBuf {
        self.out.join(&self.file)
    }

    fn stamp(&self) -> PathBuf {
        self.out.join(format!("{}.sources", self.file))
    }

    fn is_up_to_date(&self) -> bool {
        let known = std::fs::read_to_string(self.stamp());
        self.path().exists() && known.is_ok_and(|known| known == self.sources)
    }

    fn keep(&self) -> Result<(), String> {
        let stamp = self.stamp();
        std::fs::write(&stamp, &self.sources).map_err(|e| format!("{}: {e}", stamp.display()))
    }
}

fn compile_ptx(folder: &Path, target: &str) -> Result<(), String> {
    let clang = std::env::var(CLANG).unwrap_or_else(|_| "clang++-19".to_owned());
    let made = Made::of(folder, &format!("kernels_{target}.ptx"), &clang)?;
    if made.is_up_to_date() {
        return Ok(());
    }
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
        // The first version with the instructions of sm_90a.
        .args((target == "sm_90a").then_some("--cuda-feature=+ptx80"))
        .args(["-S", "-o"])
        .arg(made.path())
        .arg(folder.join("kernels/kernels.cu"))
        .status();
    let problem = match status {
        Ok(status) if status.success() => return made.keep(),
        Ok(status) => format!("{clang} ended with {status}"),
        Err(error) => format!("{clang}: {error}"),
    };
    Err(format!(
        "feature cuda compiles kernels with clang 19 (Debian: clang-19), or what {CLANG} names: \
         {problem}"
    ))
}

/// Machine code from the PTX of [`ASSEMBLED`], an empty file without an assembler; whether there is some.
fn assemble(folder: &Path) -> Result<bool, String> {
    let named = std::env::var(PTXAS).ok().filter(|name| !name.is_empty());
    let ptxas = named.clone().unwrap_or_else(|| "ptxas".to_owned());
    let release = Command::new(&ptxas).arg("--version").output();
    let release = match (release, named) {
        (Ok(output), _) if output.status.success() => output.stdout,
        (_, None) => Vec::new(),
        (Ok(output), Some(name)) => {
            return Err(format!("{PTXAS}={name} ended with {}", output.status));
        }
        (Err(error), Some(name)) => return Err(format!("{PTXAS}={name}: {error}")),
    };
    let assembler = format!("{ptxas} {}", String::from_utf8_lossy(&release));
    let is_found = !release.is_empty();
    let made = Made::of(folder, &format!("kernels_{ASSEMBLED}.cubin"), &assembler)?;
    if made.is_up_to_date() {
        return Ok(is_found);
    }
    if !is_found {
        let path = made.path();
        std::fs::write(&path, []).map_err(|error| format!("{}: {error}", path.display()))?;
    } else {
        let status = Command::new(&ptxas)
            .arg(format!("-arch={ASSEMBLED}"))
            .arg(made.out.join(format!("kernels_{ASSEMBLED}.ptx")))
            .arg("-o")
            .arg(made.path())
            .status()
            .map_err(|error| format!("{ptxas}: {error}"))?;
        if !status.success() {
            return Err(format!("{ptxas} ended with {status}"));
        }
    }
    made.keep()?;
    Ok(is_found)
}
