package etcdcluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// chooseVersion returns which version members are to run: the one that is asked for, if etcd can go there from the one that
// runs. The error says why it cannot.
func chooseVersion(asked, current, preset string) (string, error) {
	switch {
	case current == "" && asked == "":
		return preset, nil
	case current == "":
		return asked, nil
	case asked == "":
		return current, nil
	}
	from, to := parseVersion(current), parseVersion(asked)
	if from[0] == to[0] && (to[1] == from[1] || to[1] == from[1]+1) {
		return asked, nil
	}
	return current, conditions.Stall("VersionRefused", "spec.version asks for %s, and the members run %s: etcd can be upgraded to the next "+
		"minor version, not past it and not back", asked, current)
}

func parseVersion(version string) (numbers [3]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		numbers[i], _ = strconv.Atoi(part)
	}
	return numbers
}

// image returns what members of a version run.
func image(spec *v1alpha1.ImageSpec, repository, version string) string {
	if spec == nil {
		spec = &v1alpha1.ImageSpec{}
	}
	repository = cmp.Or(spec.Repository, repository)
	if spec.Digest != "" {
		return repository + "@" + spec.Digest
	}
	return repository + ":" + cmp.Or(spec.Tag, "v"+version)
}

// leastFree is the least share of free space that a member is defragmented for. Some is left by that, and more comes with each
// write: for less, members would be defragmented for ever.
const leastFree = 0.05

// schedule says whether it is the time to defragment, and from which share of free space on.
func (s *scope) schedule(seen *clusterSnapshot) {
	seen.defrag = defragmentation{due: true, threshold: 0.5}
	spec := s.cluster.Spec.Defrag
	if spec == nil {
		return
	}
	seen.defrag.allowUnavailable = spec.AllowUnavailable
	if ratio, err := strconv.ParseFloat(spec.ThresholdRatio, 64); err == nil {
		seen.defrag.threshold = max(ratio, leastFree)
	}
	if spec.Schedule == "" {
		return
	}
	last := s.cluster.CreationTimestamp.Time
	if at := s.cluster.Status.LastDefragmentation; at != nil {
		last = at.Time
	}
	due, err := isDue(spec.Schedule, last, s.Now())
	begun := s.cluster.Status.Operation // the first member's time is written down, and the others follow
	seen.defrag.due = err == nil && (due || begun != nil && begun.Type == v1alpha1.EtcdDefragment)
}

// isDue reports whether a schedule, in UTC, has come up since a time.
func isDue(schedule string, last, now time.Time) (bool, error) {
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return false, fmt.Errorf("schedule %q: %w", schedule, err)
	}
	return !parsed.Next(last.UTC()).After(now.UTC()), nil
}
