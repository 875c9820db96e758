"""Annotations of Ingresses: what they say, typed and checked, in terms that have no proxy in them.

`given` reads single values and keeps account of what is wrong; each subject has a module with a frozen record and a
function that reads it; `settings` puts them together for one Ingress. `docs/reference/annotations.md` says what each
annotation means; a name that nobody reads is told of, never passed over.
"""
