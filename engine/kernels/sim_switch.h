// The switch between fibers; in one object of a program only.
#pragma once
// Registers that a call preserves go to the old stack, those of the new one come back.
#if !defined(SIM_USES_UCONTEXT)
asm(R"(
.text
.globl mlxcel_sim_switch
.type mlxcel_sim_switch, @function
mlxcel_sim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size mlxcel_sim_switch, . - mlxcel_sim_switch
.section .note.GNU-stack,"",@progbits
.text
)");
#endif
