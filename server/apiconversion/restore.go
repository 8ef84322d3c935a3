package apiconversion

import "slices"

// mostRounds is how often restore tries to find values that agree with each other. What users wrote agrees at once; a value
// that was left out can take another with it, which rules read together with it. Then all that rules read is left out.
const mostRounds = 3

// restore returns plain, which the rules made of source, with what was kept of its version. What the source contradicts
// stays out. The image is the result converted back by the rules.
func (c *conversion) restore(r *run, source, plain map[string]any, kept []difference) (result, image map[string]any, err error) {
	for round := 1; ; round++ {
		result = patched(plain, kept)
		if image, err = c.reverse.apply(r, result, true); err != nil {
			return nil, nil, err
		}
		var agreed []difference
		seen := comparison{conversion: c, source: source, plain: plain, image: image}
		for _, d := range kept {
			if !seen.contradict(d) {
				agreed = append(agreed, d)
			}
		}
		if len(agreed) == len(kept) {
			return result, image, nil
		}
		if kept = agreed; round == mostRounds {
			kept = c.aside(kept, plain)
		}
	}
}

// aside returns what only adds to what conversion makes, and the source has no place for: no rule writes it, or reads it on
// the way back.
func (c *conversion) aside(kept []difference, plain map[string]any) (all []difference) {
	for _, d := range kept {
		_, made := d.path.get(plain)
		written := slices.ContainsFunc(c.rules, func(rule rule) bool { return d.path.overlaps(rule.destination) })
		read := slices.ContainsFunc(c.reverse.rules, func(back rule) bool { return back.readsFrom(d.path) })
		if !d.absent && !made && !written && !read && lookup(c.source, d.path) == nil {
			all = append(all, d)
		}
	}
	return all
}

// comparison is what is known of a result in which kept values came back.
type comparison struct {
	*conversion
	source, plain, image map[string]any
}

// contradict tells whether the source says something else than d, which is in the target version, looks like from there.
func (c comparison) contradict(d difference) bool {
	for i := range c.reverse.rules {
		back := &c.reverse.rules[i]
		switch {
		case !back.readsFrom(d.path):
		case back.transformation == nil && c.contradictCopy(d, back.field, back.destination):
			return true
		case back.transformation != nil && c.differ(back.destination):
			return true
		}
	}
	return c.contradictCopy(d, nil, nil)
}

// differ tells whether source and image are different there.
func (c comparison) differ(path Path) bool {
	says, found := path.get(c.source)
	looks, foundImage := path.get(c.image)
	return found != foundImage || !equal(says, looks)
}

// contradictCopy is contradict for what is copied, on the way back, from a path to another.
func (c comparison) contradictCopy(d difference, from, to Path) bool {
	rest, inside := d.path.within(from)
	if !inside {
		return c.differ(to)
	}
	elsewhere := endsAlong(c.reverse.moved, d.path, len(from))
	if to = to.join(rest...); elsewhere || endsAlong(c.reverse.written, to, len(to)-len(rest)) || !c.differ(to) {
		return false
	}
	says, found := to.get(c.source)
	value := d.value
	if d.absent {
		value, _ = d.path.get(c.plain)
	}
	switch {
	case isEmpty(value) && hasFields(says):
		return false // it is only about an empty object, and the source has one that looks empty to the target
	case !d.absent && fits(d.value, lookup(c.conversion.source, to)):
		return true
	}
	// The source can't represent it. What the source has there may be of no use to the target either.
	return found && fits(says, lookup(c.target, d.path))
}

func isEmpty(value any) bool {
	fields, isObject := value.(map[string]any)
	return isObject && len(fields) == 0
}

func hasFields(value any) bool {
	fields, _ := value.(map[string]any)
	return len(fields) > 0
}

// endsAlong tells whether a path of the tree leads to the given one, or to what that is in, by more than a number of steps.
func endsAlong(tree *pathTree, path Path, steps int) bool {
	for i := steps + 1; i <= len(path); i++ {
		if tree.at(path[:i]...).ends() {
			return true
		}
	}
	return false
}
