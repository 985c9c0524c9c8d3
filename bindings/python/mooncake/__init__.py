"""Mooncake: the KV-cache data plane under LLM serving.

`mooncake.store` is the object store; `python -m mooncake.demo` shows it at work. Importing this
package starts nothing.
"""
