# SPDX-License-Identifier: Apache-2.0
# From verbs_symbols.txt: the table of entry points, the second form's jumps through it, and both version scripts.

# compat_write_symbols(FOLDER): writes entry_points.cc, exports.map, second_form.cc and second_form.map.
function(compat_write_symbols folder)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${CMAKE_CURRENT_SOURCE_DIR}/verbs_symbols.txt" "${CMAKE_CURRENT_SOURCE_DIR}/interposed_symbols.txt")
  file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/verbs_symbols.txt" lines REGEX "^[^#]")
  file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/interposed_symbols.txt" interposed REGEX "^[^#]")

  set(head "// Made by symbols.cmake from verbs_symbols.txt.\n")
  set(nodes "")
  set(exports "")
  set(slot 0)
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" fields "${line}")
    list(GET fields 0 name)
    list(GET fields 1 node)
    list(GET fields 2 kind)
    if(NOT node IN_LIST nodes)
      list(APPEND nodes ${node})
    endif()
    string(APPEND names_of_${node} "    ${name};\n")
    if(kind STREQUAL "data")
      string(APPEND bytes "extern \"C\" {\n__attribute__((visibility(\"default\"))) bool ${name} = false;\n}\n")
      continue()
    endif()
    string(APPEND names "    \"${name}\",\n")
    if(kind STREQUAL "own")
      string(APPEND exports "    ${name};\n")
      string(APPEND table "    .quad ${name}\n")
    else()
      string(APPEND table "    .quad verbena_forward_${slot}\n")
      string(APPEND forwards "verbena_forward_${slot}:\n    push $${slot}\n    jmp verbena_forward\n")
    endif()
    math(EXPR offset "8 * ${slot}")
    string(APPEND jumps "    .globl ${name}\n    .type ${name}, @function\n${name}:\n    endbr64\n"
      "    mov verbena_entry_points@GOTPCREL(%rip), %r11\n    jmp *${offset}(%r11)\n    .size ${name}, .-${name}\n")
    math(EXPR slot "${slot} + 1")
  endforeach()
  math(EXPR table_size "8 * ${slot}")

  # The slot's number is on the stack. All registers that may carry arguments are kept (rax counts the vector registers
  # of a variadic call).
  set(common [[
verbena_forward:
    push %rax
    push %rdi
    push %rsi
    push %rdx
    push %rcx
    push %r8
    push %r9
    sub $136, %rsp
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    mov 192(%rsp), %rdi
    call verbena_resolve_forward
    mov %rax, %r11
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    add $136, %rsp
    pop %r9
    pop %r8
    pop %rcx
    pop %rdx
    pop %rsi
    pop %rdi
    pop %rax
    add $8, %rsp
    jmp *%r11
]])
  file(CONFIGURE OUTPUT "${folder}/entry_points.cc" @ONLY CONTENT
"@head@#include \"compat/interpose/forward.h\"

extern \"C\" const char* const verbena_entry_names[] = {
@names@};

__asm__(R\"(
    .text
@forwards@@common@
    .data
    .balign 8
    .globl verbena_entry_points
    .type verbena_entry_points, @object
verbena_entry_points:
@table@    .size verbena_entry_points, @table_size@
    .text
)\");
")
  file(CONFIGURE OUTPUT "${folder}/second_form.cc" @ONLY CONTENT
"@head@// Tells our libibverbs.so.1 from the system's.
extern \"C\" __attribute__((visibility(\"default\"))) const char verbena_second_form = 1;
@bytes@
__asm__(R\"(
    .text
@jumps@)\");
")

  foreach(name IN LISTS interposed)
    string(APPEND exports "    ${name};\n")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/exports.map" @ONLY CONTENT
"{
  global:
@exports@    verbena_entry_points;
  local:
    *;
};
")

  list(SORT nodes COMPARE NATURAL)
  set(versions "VERBENA {\n  global:\n    verbena_second_form;\n  local:\n    *;\n};\n")
  set(before "")
  foreach(node IN LISTS nodes)
    string(APPEND versions "${node} {\n  global:\n${names_of_${node}}}${before};\n")
    set(before " ${node}")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/second_form.map" @ONLY CONTENT "@versions@")
endfunction()
