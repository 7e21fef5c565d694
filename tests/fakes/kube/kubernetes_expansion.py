"""What Kubernetes makes of `$(NAME)` in a container's values, character by character as its own code reads them.

Behaviour of kubernetes/kubernetes fde22c3f third_party/forked/golang/expansion/expand.go: a reference is `$(`, anything
up to the next `)`; an unknown one stays; `$$` is `$`; whatever else follows a `$` stays with it.
"""


def expanded(text, variables):
    done, at = [], 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        if text[at] != "$" or not following:
            done.append(text[at])
            at += 1
        elif following == "$":
            done.append("$")
            at += 2
        elif following == "(" and (end := text.find(")", at + 2)) >= 0:
            name = text[at + 2 : end]
            done.append(variables.get(name, f"$({name})"))
            at = end + 1
        else:
            done.append(text[at : at + 2])
            at += 2
    return "".join(done)
