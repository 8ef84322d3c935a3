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

// chooseVersion returns the version that members should run: the requested one, if etcd supports the change from the current one. The error
// says why it does not.
func chooseVersion(requested, current, preset string) (string, error) {
	switch {
	case current == "" && requested == "":
		return preset, nil
	case current == "":
		return requested, nil
	case requested == "":
		return current, nil
	}
	from, to := parseVersion(current), parseVersion(requested)
	if from[0] == to[0] && (to[1] == from[1] || to[1] == from[1]+1) {
		return requested, nil
	}
	return current, conditions.Stall("VersionRefused", "spec.version is %s, and the members run %s: etcd can be upgraded by one "+
		"minor version at a time, and cannot be downgraded to an earlier minor version", requested, current)
}

func parseVersion(version string) (numbers [3]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		numbers[i], _ = strconv.Atoi(part)
	}
	return numbers
}

// image returns the image of members of a version.
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

// minThreshold is the smallest share of free space for which a member is defragmented. Defragmentation leaves some free space, and each
// write adds more: with a smaller threshold, members would be defragmented forever.
const minThreshold = 0.05

// schedule observes whether defragmentation is due, and from which share of free space on.
func (s *scope) schedule(observed *clusterSnapshot) {
	observed.defrag = defragmentation{due: true, threshold: 0.5}
	spec := s.cluster.Spec.Defrag
	if spec == nil {
		return
	}
	observed.defrag.allowUnavailable = spec.AllowUnavailable
	if ratio, err := strconv.ParseFloat(spec.ThresholdRatio, 64); err == nil {
		observed.defrag.threshold = max(ratio, minThreshold)
	}
	if spec.Schedule == "" {
		return
	}
	last := s.cluster.CreationTimestamp.Time
	if at := s.cluster.Status.LastDefragmentation; at != nil {
		last = at.Time
	}
	due, err := isDue(spec.Schedule, last, s.Now())
	begun := s.cluster.Status.Operation // the status has the time of the first member; the other members follow
	observed.defrag.due = err == nil && (due || begun != nil && begun.Type == v1alpha1.EtcdDefragment)
}

// isDue reports whether a time of a schedule, in UTC, has passed since the last one.
func isDue(schedule string, last, now time.Time) (bool, error) {
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return false, fmt.Errorf("schedule %q: %w", schedule, err)
	}
	return !parsed.Next(last.UTC()).After(now.UTC()), nil
}
