"""Chat templates that write tools as the families of Hermes and Qwen, Llama 3 and Mistral do."""

from __future__ import annotations

_HERMES = (
    "{%- if tools %}<|im_start|>system\n"
    "{%- if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "Signatures:\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>"
    "<|im_end|>\n"
    "{%- elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}"
    "<|im_end|>\n{% endif %}"
    "{%- for m in messages %}"
    "{%- if m.role == 'user' or (m.role == 'system' and not loop.first) "
    "or (m.role == 'assistant' and not m.tool_calls) %}"
    "{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant' }}"
    "{%- if m.content %}{{- '\n' + m.content }}{% endif %}"
    "{%- for call in m.tool_calls %}{% set call = call.function %}"
    '{{- \'\n<tool_call>\n{"name": "\' + call.name + \'", "arguments": \' }}'
    "{{- call.arguments | tojson }}{{- '}\n</tool_call>' }}{% endfor %}{{- '<|im_end|>\n' }}"
    "{%- elif m.role == 'tool' %}"
    "{%- if messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}"
    "{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}"
    "{% endif %}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"
)
_LLAMA3 = (
    "{{- bos_token }}{% set head = '' %}"
    "{%- if messages[0].role == 'system' %}{% set head = messages[0].content | trim %}"
    "{%- set messages = messages[1:] %}{% endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' + head + '<|eot_id|>' }}"
    "{%- for m in messages %}"
    "{%- if 'tool_calls' in m %}"
    "{%- if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{%- set call = m.tool_calls[0].function %}"
    '{{- \'<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "\' + call.name }}'
    "{{- '\", \"parameters\": ' }}{{ call.arguments | tojson }}{{- '}<|eot_id|>' }}"
    "{%- elif m.role == 'tool' %}{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
    "{{- m.content | tojson }}{{- '<|eot_id|>' }}"
    "{%- else %}{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
    "{%- if loop.first and tools %}{{- 'Functions, to be called in JSON:\n\n' }}"
    "{%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{% endfor %}{% endif %}"
    "{{- m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
_MISTRAL = (
    "{%- if messages[0].role == 'system' %}{% set head = messages[0].content %}"
    "{%- set messages = messages[1:] %}{% endif %}"
    "{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{{- bos_token }}{% for m in messages %}"
    "{%- if m.role == 'user' %}"
    "{%- if tools and m == asked[-1] %}{{- '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}"
    "{{- '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{{- '[INST]' + (head + '\n\n' if loop.last and head is defined else '') + m.content }}"
    "{{- '[/INST]' }}"
    "{%- elif m.tool_calls is defined %}{{- '[TOOL_CALLS][' }}"
    "{%- for call in m.tool_calls %}"
    "{%- if call.id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}"
    "{{- (call.function | tojson)[:-1] + ', \"id\": \"' + call.id + '\"}' }}"
    "{{- ', ' if not loop.last else ']' + eos_token }}{% endfor %}"
    "{%- elif m.role == 'assistant' %}{{- m.content + eos_token }}"
    "{%- elif m.role == 'tool' %}"
    "{%- if m.tool_call_id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}"
    '{{- \'[TOOL_RESULTS]{"content": \' + m.content + \', "call_id": "\' + m.tool_call_id }}'
    "{{- '\"}[/TOOL_RESULTS]' }}{% endif %}{% endfor %}"
)
TEMPLATES = {"hermes": _HERMES, "llama3": _LLAMA3, "mistral": _MISTRAL}
SPECIAL = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
)  # fmt: skip
ENDS = {"hermes": "<|im_end|>", "llama3": "<|eot_id|>", "mistral": "</s>"}
