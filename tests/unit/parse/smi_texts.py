"""What nvidia-smi prints, written by hand in the shapes of several drivers. No value is 0 but where one has to be."""

from __future__ import annotations

# DTD 11: power_readings, clocks_throttle_reasons, errors of single and double bits.
DTD11 = b"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
<nvidia_smi_log>
	<timestamp>Mon Apr  3 08:00:00 2023</timestamp>
	<driver_version>470.82.01</driver_version>
	<cuda_version>11.4</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:3B:00.0">
		<product_name>Tesla V100-SXM2-32GB</product_name>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode>
			<current_mig>N/A</current_mig>
			<pending_mig>N/A</pending_mig>
		</mig_mode>
		<mig_devices>
			None
		</mig_devices>
		<serial>0323418101010</serial>
		<uuid>GPU-0a11c0de-0000-1111-2222-333344445555</uuid>
		<minor_number>4</minor_number>
		<vbios_version>88.00.48.00.02</vbios_version>
		<pci>
			<pci_bus_id>00000000:3B:00.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen>
					<max_link_gen>3</max_link_gen>
					<current_link_gen>2</current_link_gen>
				</pcie_gen>
				<link_widths>
					<max_link_width>16x</max_link_width>
					<current_link_width>8x</current_link_width>
				</link_widths>
			</pci_gpu_link_info>
			<replay_counter>7</replay_counter>
			<tx_util>1000 KB/s</tx_util>
		</pci>
		<fan_speed>N/A</fan_speed>
		<performance_state>P2</performance_state>
		<clocks_throttle_reasons>
			<clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
			<clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
			<clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
			<clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
		</clocks_throttle_reasons>
		<fb_memory_usage>
			<total>32510 MiB</total>
			<used>30100 MiB</used>
			<free>2410 MiB</free>
		</fb_memory_usage>
		<bar1_memory_usage>
			<total>32768 MiB</total>
			<used>9 MiB</used>
			<free>32759 MiB</free>
		</bar1_memory_usage>
		<compute_mode>Exclusive_Process</compute_mode>
		<utilization>
			<gpu_util>93 %</gpu_util>
			<memory_util>41 %</memory_util>
			<encoder_util>1 %</encoder_util>
			<decoder_util>2 %</decoder_util>
		</utilization>
		<ecc_mode>
			<current_ecc>Enabled</current_ecc>
			<pending_ecc>Disabled</pending_ecc>
		</ecc_mode>
		<ecc_errors>
			<volatile>
				<single_bit>
					<device_memory>3</device_memory>
					<total>3</total>
				</single_bit>
				<double_bit>
					<device_memory>1</device_memory>
					<total>1</total>
				</double_bit>
			</volatile>
			<aggregate>
				<single_bit>
					<total>33</total>
				</single_bit>
				<double_bit>
					<total>11</total>
				</double_bit>
			</aggregate>
		</ecc_errors>
		<retired_pages>
			<multiple_single_bit_retirement>
				<retired_count>2</retired_count>
				<retired_pagelist>
				</retired_pagelist>
			</multiple_single_bit_retirement>
			<double_bit_retirement>
				<retired_count>5</retired_count>
				<retired_pagelist>
				</retired_pagelist>
			</double_bit_retirement>
			<pending_blacklist>Yes</pending_blacklist>
			<pending_retirement>Yes</pending_retirement>
		</retired_pages>
		<remapped_rows>N/A</remapped_rows>
		<temperature>
			<gpu_temp>61 C</gpu_temp>
			<gpu_temp_max_threshold>90 C</gpu_temp_max_threshold>
			<gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold>
			<memory_temp>58 C</memory_temp>
		</temperature>
		<power_readings>
			<power_state>P2</power_state>
			<power_draw>287.50 W</power_draw>
			<power_limit>300.00 W</power_limit>
			<default_power_limit>300.00 W</default_power_limit>
			<enforced_power_limit>290.00 W</enforced_power_limit>
			<max_power_limit>310.00 W</max_power_limit>
		</power_readings>
		<clocks>
			<graphics_clock>1380 MHz</graphics_clock>
			<sm_clock>1380 MHz</sm_clock>
			<mem_clock>877 MHz</mem_clock>
		</clocks>
		<max_clocks>
			<sm_clock>1530 MHz</sm_clock>
			<mem_clock>877 MHz</mem_clock>
		</max_clocks>
		<supported_clocks>
			<supported_mem_clock>
				<value>877 MHz</value>
			</supported_mem_clock>
		</supported_clocks>
		<processes>
			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>4242</pid>
				<type>C</type>
				<process_name>python &lt;train&gt;</process_name>
				<used_memory>30000 MiB</used_memory>
			</process_info>
			<process_info>
				<pid>77</pid>
				<type>G</type>
				<process_name>Xorg</process_name>
				<used_memory>9 MiB</used_memory>
			</process_info>
		</processes>
		<accounted_processes>
		</accounted_processes>
	</gpu>
</nvidia_smi_log>
"""

# DTD 12: two cards, the first carved into two with a gap, the second lost.
DTD12 = b"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>535.183.01</driver_version>
	<cuda_version>12.2</cuda_version>
	<attached_gpus>3</attached_gpus>
	<gpu id="00000000:1B:00.0">
		<product_name>NVIDIA A100-SXM4-80GB</product_name>
		<mig_mode>
			<current_mig>Enabled</current_mig>
			<pending_mig>Disabled</pending_mig>
		</mig_mode>
		<mig_devices>
			<mig_device>
				<index>0</index>
				<gpu_instance_id>1</gpu_instance_id>
				<compute_instance_id>0</compute_instance_id>
				<fb_memory_usage>
					<total>40192 MiB</total>
					<reserved>1 MiB</reserved>
					<used>12345 MiB</used>
					<free>27847 MiB</free>
				</fb_memory_usage>
				<bar1_memory_usage>
					<total>65535 MiB</total>
					<used>3 MiB</used>
					<free>65532 MiB</free>
				</bar1_memory_usage>
			</mig_device>
			<mig_device>
				<index>2</index>
				<gpu_instance_id>5</gpu_instance_id>
				<compute_instance_id>1</compute_instance_id>
				<fb_memory_usage>
					<total>19968 MiB</total>
					<reserved>1 MiB</reserved>
					<used>[N/A]</used>
					<free>19955 MiB</free>
				</fb_memory_usage>
				<bar1_memory_usage>
					<total>32767 MiB</total>
					<used>2 MiB</used>
					<free>32765 MiB</free>
				</bar1_memory_usage>
			</mig_device>
		</mig_devices>
		<uuid>GPU-12121212-0000-1111-2222-333344445555</uuid>
		<minor_number>3</minor_number>
		<gpu_reset_status>
			<reset_required>Yes</reset_required>
			<drain_and_reset_recommended>No</drain_and_reset_recommended>
		</gpu_reset_status>
		<fan_speed>[Not Supported]</fan_speed>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_hw_power_brake_slowdown>Active</clocks_event_reason_hw_power_brake_slowdown>
		</clocks_event_reasons>
		<fb_memory_usage>
			<total>81920 MiB</total>
			<reserved>869 MiB</reserved>
			<used>12400 MiB</used>
			<free>68651 MiB</free>
		</fb_memory_usage>
		<utilization>
			<gpu_util>0 %</gpu_util>
			<memory_util>0 %</memory_util>
		</utilization>
		<ecc_errors>
			<volatile>
				<sram_correctable>1</sram_correctable>
				<sram_uncorrectable>N/A</sram_uncorrectable>
				<dram_correctable>2</dram_correctable>
				<dram_uncorrectable>4</dram_uncorrectable>
			</volatile>
			<aggregate>
				<sram_correctable>ERR!</sram_correctable>
				<sram_uncorrectable>1</sram_uncorrectable>
				<dram_correctable>2</dram_correctable>
				<dram_uncorrectable>4</dram_uncorrectable>
			</aggregate>
		</ecc_errors>
		<remapped_rows>
			<remapped_row_corr>1</remapped_row_corr>
			<remapped_row_unc>2</remapped_row_unc>
			<remapped_row_pending>Yes</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
		<temperature>
			<gpu_temp>Unknown Error</gpu_temp>
		</temperature>
		<gpu_power_readings>
			<power_draw>ERR!</power_draw>
			<current_power_limit>500.00 W</current_power_limit>
		</gpu_power_readings>
		<fabric>
			<state>N/A</state>
			<status>N/A</status>
		</fabric>
		<processes>
			<process_info>
				<gpu_instance_id>1</gpu_instance_id>
				<compute_instance_id>0</compute_instance_id>
				<pid>4242</pid>
				<type>C</type>
				<process_name>python</process_name>
				<used_memory>12000 MiB</used_memory>
			</process_info>
		</processes>
	</gpu>
	<gpu id="00000000:2C:00.0">
		<product_name>GPU is lost</product_name>
		<uuid>GPU is lost</uuid>
		<minor_number>GPU is lost</minor_number>
		<processes>
		</processes>
	</gpu>
</nvidia_smi_log>
"""
LIST12 = b"""GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-12121212-0000-1111-2222-333344445555)
  MIG 3g.40gb     Device  0: (UUID: MIG-aaaaaaaa-0000-1111-2222-333344445555)
  MIG 1c.2g.20gb  Device  2: (UUID: MIG-bbbbbbbb-0000-1111-2222-333344445555)
Unable to determine the device handle for gpu 0000:2C:00.0: GPU is lost.  Reboot the system to recover this GPU
GPU 2: NVIDIA A100-SXM4-80GB (UUID: GPU-99999999-0000-1111-2222-333344445555)
"""

# DTD 13: instant and average power, recovery action, parity and SEC-DED apart, fabric with health.
DTD13 = b"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">
<nvidia_smi_log>
	<driver_version>590.48.01</driver_version>
	<cuda_version>13.1</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000009:01:00.0">
		<product_name>NVIDIA GB200</product_name>
		<display_mode>Requested functionality has been deprecated</display_mode>
		<mig_mode>
			<current_mig>Disabled</current_mig>
			<pending_mig>Disabled</pending_mig>
		</mig_mode>
		<uuid>GPU-13131313-0000-1111-2222-333344445555</uuid>
		<minor_number>1</minor_number>
		<gpu_recovery_action>Drain and Reset</gpu_recovery_action>
		<a_field_of_tomorrow>
			<with>children</with>
		</a_field_of_tomorrow>
		<fb_memory_usage>
			<total>189471 MiB</total>
			<reserved>614 MiB</reserved>
			<used>1000 MiB</used>
			<free>187857 MiB</free>
		</fb_memory_usage>
		<ecc_errors>
			<volatile>
				<sram_correctable>0</sram_correctable>
				<sram_uncorrectable_parity>1</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>2</sram_uncorrectable_secded>
				<dram_correctable>0</dram_correctable>
				<dram_uncorrectable>4</dram_uncorrectable>
			</volatile>
		</ecc_errors>
		<gpu_power_readings>
			<power_state>Requested functionality has been deprecated</power_state>
			<average_power_draw>139.62 W</average_power_draw>
			<instant_power_draw>142.33 W</instant_power_draw>
			<current_power_limit>1200.00 W</current_power_limit>
		</gpu_power_readings>
		<fabric>
			<state>Completed</state>
			<status>Success</status>
			<cliqueId>32766</cliqueId>
			<clusterUuid>D0B0AD4B-9F4B-4F5C-8B60-2A1A2B3C4D5E</clusterUuid>
			<health>
				<summary>Unhealthy</summary>
				<bandwidth>Degraded</bandwidth>
				<route_recovery_in_progress>False</route_recovery_in_progress>
				<route_unhealthy>True</route_unhealthy>
				<incorrect_configuration>Insufficient NVLinks</incorrect_configuration>
			</health>
		</fabric>
		<processes>
		</processes>
	</gpu>
</nvidia_smi_log>
"""

# -q, of a driver of today: the MIG card of DTD12 by other names.
TEXT = b"""
==============NVSMI LOG==============

Timestamp                                              : Fri Jul  3 22:22:26 2026
Driver Version                                         : 590.48.01
CUDA Version                                           : 13.1

Attached GPUs                                          : 2
GPU 00000000:1B:00.0
    Product Name                                       : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                                        : Enabled
        Pending                                        : Disabled
    MIG Device
        Index                                          : 0
        GPU Instance ID                                : 1
        Compute Instance ID                            : 0
        Shared FB Memory Usage
            Total                                      : 40192 MiB
            Used                                       : 12345 MiB
        Shared BAR1 Memory
            Total                                      : 65535 MiB
            Used                                       : 3 MiB
    GPU UUID                                           : GPU-12121212-0000-1111-2222-333344445555
    Minor Number                                       : 3
    GPU Recovery Action                                : None
    PCI
        Bus Id                                         : 00000000:1B:00.0
        GPU Link Info
            PCIe Generation
                Max                                    : 4
                Current                                : 3
            Link Width
                Max                                    : 16x
                Current                                : 4x
    Clocks Event Reasons
        Idle                                           : Not Active
        HW Slowdown                                    : Active
            HW Thermal Slowdown                        : Not Active
            HW Power Brake Slowdown                    : Active
    FB Memory Usage
        Total                                          : 81920 MiB
        Used                                           : 12400 MiB
    Temperature
        GPU Current Temp                               : 36 C
    GPU Power Readings
        Average Power Draw                             : 294.94 W
        Instantaneous Power Draw                       : 292.14 W
        Current Power Limit                            : 500.00 W
    Remapped Rows
        Correctable Error                              : 1
        Uncorrectable Error                            : 2
        Pending                                        : No
        Remapping Failure Occurred                     : Yes
    Clocks
        SM                                             : 1410 MHz
    Processes
        GPU instance ID                   : 1
        Compute instance ID               : 0
        Process ID                        : 4242
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 12000 MiB
        GPU instance ID                   : 1
        Compute instance ID               : 0
        Process ID                        : 4243
            Type                          : C
            Name                          : sleep : 5
            Used GPU Memory               : 1 MiB
    Capabilities
        EGM                                            : disabled

GPU 00000000:2C:00.0
    Product Name                                       : NVIDIA A100-SXM4-80GB
    GPU UUID                                           : GPU-23232323-0000-1111-2222-333344445555
    Utilization
        GPU                                            : 93 %
        Memory                                         : 41 %
    Processes                                          : None
"""

TOPO = b"""\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPIX\tSYS\t0-31,64-95\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPHB\t32-63,96-127\t1\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t
NIC1\tSYS\tPHB\tSYS\t X \t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0

"""
OLD_TOPO = b"""\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPXB\tNODE\tSYS\t0-23\tN/A
GPU1\tPXB\t X \tNODE\tSYS\t0-23\t0-1
mlx5_0\tNODE\tNODE\t X \tSYS
mlx5_1\tSYS\tSYS\tSYS\t X
"""
